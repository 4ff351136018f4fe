// Package pagetest measures pages in a browser, for tests.
package pagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A layout is how a browser lays out a page with all details open.
type layout struct {
	Width  int // of the window, without a scroll bar
	Scroll int // width of the page; more than Width: it scrolls sideways
	// Tables are the tables that scroll sideways in their boxes.
	Tables []string
	// Letters is the size in pixels of the smallest text of a figure, 0 without figures.
	Letters float64
}

const measure = `<script>
addEventListener('load', () => {
	const out = [...document.querySelectorAll('iframe')].map(f => {
		const d = f.contentDocument, e = d.documentElement;
		d.querySelectorAll('details').forEach(x => x.open = true);
		const wide = [...d.querySelectorAll('.scroll')].filter(x => x.scrollWidth > x.clientWidth);
		const letters = [...d.querySelectorAll('.plot text')].map(t => parseFloat(getComputedStyle(t).fontSize) * t.ownerSVGElement.getScreenCTM().a);
		return {
			Width: e.clientWidth, Scroll: e.scrollWidth, Letters: letters.length ? Math.min(...letters) : 0,
			Tables: wide.map(x => x.scrollWidth + ' in ' + x.clientWidth + ': ' + x.innerText.slice(0, 60)),
		};
	});
	const pre = document.createElement('pre');
	pre.textContent = JSON.stringify(out);
	document.body.replaceChildren(pre);
});
</script>`

// measured lays out pages in windows of some widths, page by page. It skips the test where there
// is no Chromium.
func measured(t *testing.T, widths []int, pages []string) []layout {
	t.Helper()
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			browser = p
			break
		}
	}
	if browser == "" {
		t.Skip("no chromium here to lay out the page")
	}
	var b strings.Builder
	b.WriteString("<!DOCTYPE html><meta charset=utf-8><title>measure</title>" + measure)
	for _, p := range pages {
		for _, w := range widths {
			fmt.Fprintf(&b, "<iframe style=\"border:0;width:%dpx;height:900px\" srcdoc=\"%s\"></iframe>\n", w, html.EscapeString(p))
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "pages.html")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	c := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+filepath.Join(dir, "profile"), "--virtual-time-budget=1000", "--dump-dom", "file://"+file)
	c.WaitDelay = time.Second
	out, err := c.Output()
	m := regexp.MustCompile(`(?s)<body><pre>(.*?)</pre>`).FindSubmatch(out)
	if m == nil {
		t.Skipf("%s does not lay out pages here: %v", browser, err)
	}
	var all []layout
	if err := json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &all); err != nil {
		t.Fatalf("%v: %.300s", err, m[1])
	}
	return all
}

// Fits fails a test if a page scrolls sideways on a phone or a table does on a wide screen, or
// if the text of a figure cannot be read.
func Fits(t *testing.T, pages map[string]string) {
	t.Helper()
	widths := []int{390, 1200}
	names := slices.Sorted(maps.Keys(pages))
	var all []string
	for _, n := range names {
		all = append(all, pages[n])
	}
	layouts := measured(t, widths, all)
	for i, name := range names {
		for k, width := range widths {
			l := layouts[i*len(widths)+k]
			if l.Scroll > l.Width {
				t.Errorf("%s is %d wide in a window of %d", name, l.Scroll, l.Width)
			}
			if l.Letters != 0 && l.Letters < 9 {
				t.Errorf("%s has letters of %.1f pixels in a figure, in a window of %d", name, l.Letters, width)
			}
			if width > 1000 && len(l.Tables) > 0 {
				t.Errorf("%s has tables that scroll, in a window of %d: %q", name, width, l.Tables)
			}
		}
	}
}
