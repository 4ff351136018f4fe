package uet

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm/contract"
	"github.com/uetkit/uetkit/internal/tss"
)

const keyLen = tss.KeyLen

// A ClusterKey is the secret that the members of a cluster share. It does not show
// its key when it is printed or encoded; only WriteClusterKey writes it.
type ClusterKey struct {
	// Generation tells keys apart, 1 and up: the higher is the newer.
	Generation uint32
	Key        [keyLen]byte
	// Next says that packets under this key are accepted, but none is sealed with it yet.
	Next bool
}

// NewKey makes a random key.
func NewKey(generation uint32) ClusterKey {
	k := ClusterKey{Generation: generation}
	_, _ = rand.Read(k.Key[:]) // never fails
	return k
}

// String names the generation of the key.
func (k ClusterKey) String() string { return fmt.Sprintf("cluster key %d (hidden)", k.Generation) }

// Format prints what String returns, with every verb.
func (k ClusterKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(k.String())) }

// MarshalText returns what String does, so that encoders do not show the key.
func (k ClusterKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// an returns the association number of a key. Peers compute the same number independently.
func (k *ClusterKey) an() uint8 { return uint8(k.Generation & 1) }

// keyHeader is the first line of a key file; the others begin with one of the words.
const (
	keyHeader = "uetkit-cluster-key 1"
	wordKey   = "key"
	wordNext  = "next"
)

// WriteClusterKey writes a key file for LoadClusterKey, readable by its owner alone. It
// replaces an existing file atomically.
func WriteClusterKey(path string, keys ...ClusterKey) error {
	if err := checkKeys(keys); err != nil {
		return fmt.Errorf("uet: %s not written: %w", path, err)
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, keyHeader)
	for _, k := range inOrder(keys) {
		word := wordKey
		if k.Next {
			word = wordNext
		}
		fmt.Fprintf(&b, "%s %d %s\n", word, k.Generation, hex.EncodeToString(k.Key[:]))
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".cluster-key-") // mode 0600
	if err != nil {
		return fmt.Errorf("uet: cluster key: %w", err)
	}
	_, err = f.Write(b.Bytes())
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("uet: cluster key: %w", err)
	}
	return nil
}

// ReadClusterKey reads the keys of a file that WriteClusterKey wrote; the first one seals.
// A program that only uses the keys calls LoadClusterKey instead.
func ReadClusterKey(path string) ([]ClusterKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("uet: cluster key: %w", contract.Unreadable(err, "WriteClusterKey makes such a file, and so does `uetperf keys DIR`, as DIR/cluster.key"))
	}
	defer clear(b)
	keys, err := parseKeys(b)
	if err != nil {
		return nil, fmt.Errorf("uet: cluster key: %s: %w: %w", path, err, fi.EINVAL)
	}
	defer clear(keys)
	return inOrder(keys), nil
}

// maxKeyFile bounds a key file in bytes: two keys and comments.
const maxKeyFile = 64 << 10

// parseKeys reads a key file. Its errors name the line and what to do, never a key.
func parseKeys(b []byte) ([]ClusterKey, error) {
	if len(b) > maxKeyFile {
		return nil, fmt.Errorf("%d bytes are no key file", len(b))
	}
	var keys []ClusterKey
	header := false
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || strings.HasPrefix(f[0], "#"):
			continue
		case !header:
			if strings.Join(f, " ") != keyHeader {
				return nil, fmt.Errorf("line %d: a key file begins with %q", n, keyHeader)
			}
			header = true
			continue
		case f[0] != wordKey && f[0] != wordNext || len(f) != 3:
			return nil, fmt.Errorf("line %d: write \"key GENERATION KEY\", the key as 64 hexadecimal digits", n)
		}
		gen, err := strconv.ParseUint(f[1], 10, 32)
		if err != nil || gen == 0 {
			return nil, fmt.Errorf("line %d: the generation is a number from 1", n)
		}
		raw, err := hex.DecodeString(f[2])
		if err != nil || len(raw) != keyLen {
			return nil, fmt.Errorf("line %d: the key of generation %d has %d characters; 64 hexadecimal digits are needed", n, gen, len(f[2]))
		}
		k := ClusterKey{Generation: uint32(gen), Next: f[0] == wordNext}
		copy(k.Key[:], raw)
		clear(raw)
		keys = append(keys, k)
	}
	if !header {
		return nil, fmt.Errorf("empty; a key file begins with %q", keyHeader)
	}
	return keys, checkKeys(keys)
}

// checkKeys returns why the keys cannot be used together.
func checkKeys(keys []ClusterKey) error {
	switch {
	case len(keys) == 0:
		return errors.New("no key; add a line \"key 1 KEY\", the key as 64 hexadecimal digits")
	case len(keys) > 2:
		return fmt.Errorf("%d keys; keep the two newest", len(keys))
	}
	for i := range keys {
		if keys[i].Generation == 0 {
			return errors.New("generation 0; generations are numbers from 1")
		}
		if keys[i].Key == ([keyLen]byte{}) {
			return fmt.Errorf("the key of generation %d is all zeros; make a random one", keys[i].Generation)
		}
	}
	if len(keys) == 1 && keys[0].Next {
		return fmt.Errorf("only the next key, of generation %d; the one that seals until then is needed too", keys[0].Generation)
	}
	if len(keys) == 2 {
		a, b := &keys[0], &keys[1]
		switch {
		case a.Generation == b.Generation:
			return fmt.Errorf("two keys of generation %d; give the new one the next number", a.Generation)
		case a.Key == b.Key:
			return fmt.Errorf("generations %d and %d are the same key; make a new one", a.Generation, b.Generation)
		case a.an() == b.an():
			return fmt.Errorf("generations %d and %d are both odd or both even; number them one after the other", a.Generation, b.Generation)
		case a.Next && (b.Next || a.Generation < b.Generation), b.Next && b.Generation < a.Generation:
			return errors.New("the next key is one, with the higher generation")
		}
	}
	return nil
}

// inOrder returns a copy of keys with the one that seals first.
func inOrder(keys []ClusterKey) []ClusterKey {
	out := slices.Clone(keys)
	if len(out) == 2 && (out[0].Next || !out[1].Next && out[1].Generation > out[0].Generation) {
		out[0], out[1] = out[1], out[0]
	}
	return out
}
