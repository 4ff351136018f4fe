package boot

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// firstHost returns the first host of a hostlist as Slurm writes them, all of which must
// parse:
//
//	list  = item { "," item }
//	item  = { text | "[" range { "," range } "]" }
//	range = number [ "-" number ]
//
// Numbers keep the zeros in front of them.
func firstHost(list string) (string, error) {
	first := ""
	for n := 0; ; n++ {
		item, rest, err := cutItem(list)
		if err != nil {
			return "", err
		}
		host, err := firstOfItem(item)
		if err != nil {
			return "", err
		}
		if n == 0 {
			first = host
		}
		if rest == "" {
			return first, nil
		}
		list = rest[1:]
	}
}

// cutItem splits a list at its first comma outside of brackets. The rest begins with it.
func cutItem(list string) (item, rest string, err error) {
	open := false
	for i := range len(list) {
		switch c := list[i]; {
		case c == '[' && !open:
			open = true
		case c == ']' && open:
			open = false
		case c == '[' || c == ']':
			return "", "", fmt.Errorf("a bracket too many at byte %d", i)
		case c == ',' && !open:
			return list[:i], list[i:], nil
		}
	}
	if open {
		return "", "", errors.New("a bracket is not closed")
	}
	return list, "", nil
}

// firstOfItem returns the first host of one item, whose brackets are in pairs.
func firstOfItem(item string) (string, error) {
	if item == "" {
		return "", errors.New("a host without a name")
	}
	host := ""
	for item != "" {
		text, rest, bracket := strings.Cut(item, "[")
		for i := range len(text) {
			if c := text[i]; c <= ' ' || c >= 0x7f || c == '=' || c == '/' {
				return "", fmt.Errorf("a host name with %q", c)
			}
		}
		host += text
		item = ""
		if bracket {
			var inside string
			inside, item, _ = strings.Cut(rest, "]")
			number, err := firstNumber(inside)
			if err != nil {
				return "", err
			}
			host += number
		}
	}
	return host, nil
}

// firstNumber returns the first number of "1,03-7".
func firstNumber(ranges string) (string, error) {
	first := ""
	for s := range strings.SplitSeq(ranges, ",") {
		a, b, two := strings.Cut(s, "-")
		if !two {
			b = a
		}
		from, err1 := digits(a)
		to, err2 := digits(b)
		if err1 != nil || err2 != nil || to < from {
			return "", fmt.Errorf("%q is no number and no range", clip(s))
		}
		if first == "" {
			first = a
		}
	}
	return first, nil
}

// digits reads one to nine digits.
func digits(s string) (int, error) {
	if len(s) == 0 || len(s) > 9 || strings.Trim(s, "0123456789") != "" {
		return 0, errors.New("no number")
	}
	return strconv.Atoi(s)
}
