package main

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// home is where the files of the tree that no archive has are found.
const home = "https://github.com/uetkit/uetkit/blob/"

// paperFiles are the files of the tree that go into every archive: the papers, and the pages with their
// pictures and examples.
func paperFiles(ctx context.Context, root string) ([]string, error) {
	said, err := run(ctx, nil, "git", "-C", root, "ls-files", "docs")
	if err != nil {
		return nil, err
	}
	return append(strings.Fields(said), papers...), nil
}

// paperEntries reads the papers and pages. Links to what is not among them lead to the project's home, at
// the commit.
func paperEntries(root, commit string, files []string) ([]entry, error) {
	has := map[string]bool{}
	for _, f := range files {
		for ; f != "."; f = path.Dir(f) {
			has[f] = true // folders, too
		}
	}
	var all []entry
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f)))
		if err != nil {
			return nil, err
		}
		if path.Ext(f) == ".md" {
			data = []byte(relink(f, string(data), has, home+strings.TrimSuffix(commit, "+")+"/"))
		}
		all = append(all, entry{f, fs.FileMode(0o644), data})
	}
	return all, nil
}

// link matches the target of a link of a page, with what is around it.
var link = regexp.MustCompile(`(\]\()([^()\s]+)(\))`)

// relink makes the links of a page to files that has lacks absolute.
func relink(page, text string, has map[string]bool, base string) string {
	return link.ReplaceAllStringFunc(text, func(s string) string {
		m := link.FindStringSubmatch(s)
		file, anchor, anchored := strings.Cut(m[2], "#")
		if file == "" || strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
			return s
		}
		to := path.Join(path.Dir(page), file)
		if has[to] {
			return s
		}
		if anchored {
			to += "#" + anchor
		}
		return m[1] + base + to + m[3]
	})
}
