package lint

import "testing"

// pages returns the pages of this module.
func pages(t *testing.T) *Pages {
	t.Helper()
	p, err := LoadPages(house(t).root)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHouseLinks(t *testing.T) { report(t, pages(t).Links()) }

func TestHouseReadme(t *testing.T) { report(t, pages(t).Readme(110)) }

func TestHousePagesHaveGoThatCompiles(t *testing.T) {
	found, err := pages(t).Code(house(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestPagesFindWhatIsWrong(t *testing.T) {
	m := sources(t, map[string]string{
		"README.md": "# One\n\n[a](docs/a.md) [b](docs/b.md) [c](docs/a.md#two-words) [d](docs/a.md#three) [e](#one) [f](#two)\n" +
			"[web](https://example.org/x) `[code](no.md)` [folder](docs) ![i](docs/i.svg)\n\n" +
			"```sh\n[g](no.md)\n```\n\n```go\nf(1)\n\ng(2)\n```\n\n```go\nf(1)\ng(2)\n```\n",
		"docs/a.md":             "# Two words!\n\n[up](../README.md#one)\n\n```\n# three\n```\n",
		"docs/testdata/none.md": "[x](none)\n",
		"core/a_test.go":        "package core\n\nfunc h() {\n\tf(1)\n\n\tg(2)\n}\n",
	})
	p, err := LoadPages(m.root)
	if err != nil {
		t.Fatal(err)
	}
	want(t, p.Links(),
		"README.md:3: docs/b.md",
		"README.md:3: docs/a.md#three: there is no such heading",
		"README.md:3: #two",
		"README.md:4: docs/i.svg",
	)
	code, err := p.Code(m)
	if err != nil {
		t.Fatal(err)
	}
	want(t, code, "README.md:17: no Go file has this block")
	want(t, p.Readme(18),
		"README.md: 1 sh blocks",
		"README.md: 19 lines, and two screens are 18",
	)
}
