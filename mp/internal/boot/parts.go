package boot

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// A card lies in a key-value space as parts, since values are short there. The first part
// says how many there are: "0003.…". All of it is base64url without padding, because neither
// PMI-1 nor PMIx promise more than letters, digits and a few signs.

const (
	minPart  = 32   // the shortest value that is made use of
	maxParts = 1024 // enough for MaxCard in values of minPart
)

func partKey(rank, i int) string { return fmt.Sprintf("uet-%d-%d", rank, i) }

// split cuts a card into values of at most limit bytes, which is minPart or more.
func split(card []byte, limit int) []string {
	text := encode(card)
	n := (len("1024.") + len(text) + limit - 1) / limit
	text = fmt.Sprintf("%04d.", n) + text
	parts := make([]string, n)
	for i := range parts {
		parts[i] = text[i*limit : min((i+1)*limit, len(text))]
	}
	return parts
}

// join fetches the parts of a card and joins them.
func join(get func(i int) (string, error)) ([]byte, error) {
	first, err := get(0)
	if err != nil {
		return nil, err
	}
	count, text, ok := strings.Cut(first, ".")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 1 || n > maxParts {
		return nil, &PMIError{Cmd: "get", Why: fmt.Sprintf("%q is no card", clip(first))}
	}
	for i := 1; i < n; i++ {
		part, err := get(i)
		if err != nil {
			return nil, err
		}
		text += part
	}
	card, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(card) > MaxCard {
		return nil, &PMIError{Cmd: "get", Why: fmt.Sprintf("%q is no card", clip(text))}
	}
	return card, nil
}
