package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestVersionLeavesTheShortFlagAlone(t *testing.T) {
	for _, c := range []struct {
		args, want string
	}{
		{"--version", "uetx "},
		{"-v", "unknown shorthand flag: 'v'"},
	} {
		root := &cobra.Command{Use: "uetx [flags]", RunE: func(*cobra.Command, []string) error { return nil }, SilenceUsage: true}
		Version(root)
		var out bytes.Buffer
		root.SetArgs(strings.Fields(c.args))
		root.SetOut(&out)
		root.SetErr(&out)
		_ = root.Execute()
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: %q", c.args, &out)
		}
	}
}

// tree is a program whose help has what manual pages could stumble over.
func tree() *cobra.Command {
	root := &cobra.Command{Use: "uetx", Short: "a program", Long: `uetx does it.

  uetx go 'quoted'
  .dotted \\n

'Behind it.`, SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true}}
	sub := &cobra.Command{Use: "go [flags]", Short: "go", Example: "  uetx go", RunE: func(*cobra.Command, []string) error { return nil }}
	sub.Flags().StringP("mode", "m", "rud", "`MODE` of it")
	sub.Flags().String("iface", "", "")
	sub.Flags().String("hidden", "", "")
	_ = sub.Flags().MarkHidden("hidden")
	Values(sub, "mode", "rud", "rod")
	Interfaces(sub, "iface")
	root.AddCommand(sub, &cobra.Command{Use: "secret", Hidden: true, RunE: sub.RunE})
	Version(root)
	return root
}

func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	root, args := tree(), []string{"__man", dir}
	Manual(root, args)
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(dir + "/*")
	if len(files) != 2 {
		t.Fatalf("pages %v", files)
	}
	for name, wants := range map[string][]string{
		"uetx.1":    {"\n.nf\nuetx go 'quoted'\n\\&.dotted \\e\\en\n", "\n.fi\n.RE\n.PP\n\\&'Behind it.\n", "\\fBgo\\fR\ngo\n", "\\-\\-version", "\\fBuetx\\-go\\fR(1)\n"},
		"uetx-go.1": {"uetx-go \\- go\n", "\\fB\\-m\\fR, \\fB\\-\\-mode\\fR \\fIMODE\\fR\nMODE of it (default rud)\n", `.SH "EXAMPLES"`},
	} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s has no %q:\n%s", name, want, page)
			}
		}
		if strings.Contains(string(page), "hidden") || strings.Contains(string(page), "secret") {
			t.Errorf("%s shows what is hidden:\n%s", name, page)
		}
		if groff, err := exec.LookPath("groff"); err == nil {
			c := exec.Command(groff, "-man", "-ww", "-z", filepath.Join(dir, name))
			if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("groff says of %s: %v, %s", name, err, out)
			}
		}
	}
}

func TestManualIsNoCommandOtherwise(t *testing.T) {
	root := tree()
	Manual(root, []string{"go", "__man"})
	for _, c := range root.Commands() {
		if c.Name() == manualRequest {
			t.Error("the request is a command")
		}
	}
}

func TestValuesAreCompleted(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"go", "--mode", ""}, "rud\nrod\n:4\n"},
		{[]string{"go", "--iface", "lo"}, "lo"},
	} {
		root := tree()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append([]string{"__complete"}, c.args...))
		if err := root.Execute(); err != nil || !strings.HasPrefix(out.String(), c.want) {
			t.Errorf("%q: %v, %q", c.args, err, &out)
		}
	}
}

func TestMeant(t *testing.T) {
	for word, want := range map[string]string{"rnu": ": did you mean run?", "Dokcer": ": did you mean docker?", "zzzzzz": "", "": "", "n": ""} {
		if got := Meant(word, "list", "run", "docker", "netns"); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	for flag, want := range map[string]string{"--mdoe": ": did you mean --mode?", "--hiddn": "", "--zzz": "", "-x": "", "--mode": ""} {
		root := tree()
		root.SetArgs([]string{"go", flag})
		cmd, err := root.ExecuteC()
		if got := MeantFlag(cmd, err); got != want {
			t.Errorf("%s: %q, want %q (%v)", flag, got, want, err)
		}
	}
}

func TestUsageOfASwitch(t *testing.T) {
	root := tree()
	root.PersistentFlags().Bool("keep", false, "")
	root.SetArgs([]string{"go", "--keep=maybe"})
	if err := root.Execute(); err == nil || Usage(err) != "--keep: \"maybe\" is neither true nor false" {
		t.Errorf("%v", err)
	}
}
