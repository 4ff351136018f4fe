package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/testbed/result"
)

// These are the elements and attributes that CI systems agree on.
type (
	testSuites struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		counts
		Suites []*testSuite `xml:"testsuite"`
	}
	counts struct {
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Time     string `xml:"time,attr"`

		took time.Duration
	}
	testSuite struct {
		Name string `xml:"name,attr"`
		counts
		Timestamp string     `xml:"timestamp,attr,omitempty"`
		Hostname  string     `xml:"hostname,attr,omitempty"`
		Cases     []testCase `xml:"testcase"`
	}
	testCase struct {
		Name      string   `xml:"name,attr"`
		ClassName string   `xml:"classname,attr"`
		Time      string   `xml:"time,attr"`
		Failure   *outcome `xml:"failure,omitempty"`
		Error     *outcome `xml:"error,omitempty"`
		Skipped   *outcome `xml:"skipped,omitempty"`
		Out       string   `xml:"system-out,omitempty"`
		Err       string   `xml:"system-err,omitempty"`
	}
	outcome struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes the results as JUnit XML, with a suite per substrate and a case per
// scenario. Inconclusive and unsupported scenarios count as skipped, with the reason.
func JUnit(w io.Writer, rs []*result.Result) error {
	all := testSuites{Name: "uetkit testbed"}
	by := map[string]*testSuite{}
	for _, r := range rs {
		s := by[r.Substrate]
		if s == nil {
			s = &testSuite{Name: "testbed." + r.Substrate, Hostname: r.Machine.Name}
			if !r.Started.IsZero() {
				s.Timestamp = r.Started.UTC().Format("2006-01-02T15:04:05")
			}
			by[r.Substrate] = s
			all.Suites = append(all.Suites, s)
		}
		c := testCase{Name: r.Scenario, ClassName: s.Name, Time: seconds(r.Took), Out: said(r)}
		o := &outcome{Message: r.Reason, Type: string(r.Verdict), Text: failed(r)}
		if o.Message == "" {
			o.Message = string(r.Verdict)
		}
		one := counts{Tests: 1, took: r.Took}
		switch r.Verdict {
		case result.Pass:
		case result.Fail:
			c.Failure, one.Failures = o, 1
		case result.Inconclusive, result.Unsupported:
			o.Message = string(r.Verdict) + ": " + o.Message
			o.Type = "" // the element skipped has no type
			c.Skipped, one.Skipped = o, 1
		default:
			if r.Verdict == "" {
				o.Message, o.Type = "no verdict", "error"
			}
			c.Error, one.Errors = o, 1
		}
		if r.Verdict == result.Fail || r.Verdict == result.Error {
			c.Err = logs(r)
		}
		s.Cases = append(s.Cases, c)
		s.add(one)
		all.add(one)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (c *counts) add(o counts) {
	c.Tests += o.Tests
	c.Failures += o.Failures
	c.Errors += o.Errors
	c.Skipped += o.Skipped
	c.took += o.took
	c.Time = seconds(c.took)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// failed lists the assertions that are false.
func failed(r *result.Result) string {
	var b strings.Builder
	for _, a := range r.Asserts {
		if !a.Pass {
			fmt.Fprintf(&b, "%s: %s", a.Expr, a.Value)
			if a.Why != "" {
				fmt.Fprintf(&b, " (%s)", a.Why)
			}
			b.WriteByte('\n')
		}
	}
	for _, w := range r.Health.Why {
		fmt.Fprintf(&b, "health: %s\n", w)
	}
	return b.String()
}

// said describes a passed case: its question, its assertions, and the command that repeats
// it.
func said(r *result.Result) string {
	var b strings.Builder
	if r.Question != "" {
		fmt.Fprintf(&b, "%s\n", r.Question)
	}
	for _, a := range r.Asserts {
		word := "ok  "
		if !a.Pass {
			word = "FAIL"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", word, a.Expr, a.Value)
	}
	if len(r.Command) > 0 {
		fmt.Fprintf(&b, "repeat: %s\n", page.Shell(r.Command))
	}
	return b.String()
}

// logs returns the last lines of the logs of all hosts.
func logs(r *result.Result) string {
	var b strings.Builder
	for _, h := range r.Hosts {
		if h.Log != "" {
			fmt.Fprintf(&b, "--- %s\n%s\n", h.Name, strings.TrimRight(h.Log, "\n"))
		}
	}
	return b.String()
}
