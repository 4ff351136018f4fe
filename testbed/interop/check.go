package main

import (
	"crypto/sha256"
	"crypto/sha3"
	"encoding/hex"
	"fmt"
)

// A message is one message of a transfer.
type message struct {
	n       int // its place in the order of sending
	tag     uint64
	data    *uint64
	content []byte
}

// content makes the bytes of message n of a run, as the peer makes them: no other message has them.
func content(seed uint64, n, size int) []byte {
	return sha3.SumSHAKE128(fmt.Appendf(nil, "%d:%d:%d", seed, n, size), size)
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// A receipt is what came into one receive.
type receipt struct {
	post   int // the place of the receive in post order
	size   int
	sha256 string
	tag    uint64
	data   *uint64
	clean  bool // nothing but the message was written
}

// verify holds what was received, in the order of completion, against what was sent: every message
// once, every byte of it, its tag and data, nothing behind it; in the receive that it had to match.
func verify(sent []message, got []receipt, tagged, matchByTag, ordered bool) error {
	key := func(size int, sum string) string { return fmt.Sprintf("%d %s", size, sum) }
	waiting := map[string][]message{}
	for _, m := range sent {
		k := key(len(m.content), digest(m.content))
		waiting[k] = append(waiting[k], m)
	}
	for _, r := range got {
		if !r.clean {
			return fmt.Errorf("receive %d: bytes behind the message were written", r.post)
		}
		k := key(r.size, r.sha256)
		at := -1
		for i, m := range waiting[k] { // only empty messages are alike
			if (!tagged || m.tag == r.tag) && same(m.data, r.data) {
				at = i
				break
			}
		}
		if at < 0 {
			return fmt.Errorf("receive %d: %d bytes %.8s, tag %#x, data %s are no message, or one twice", r.post, r.size, r.sha256, r.tag, show(r.data))
		}
		m := waiting[k][at]
		waiting[k] = append(waiting[k][:at:at], waiting[k][at+1:]...)
		if (matchByTag || ordered) && m.n != r.post {
			return fmt.Errorf("receive %d has message %d", r.post, m.n)
		}
	}
	if len(got) != len(sent) {
		return fmt.Errorf("%d messages were sent, %d received", len(sent), len(got))
	}
	return nil
}

func same(a, b *uint64) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func show(d *uint64) string {
	if d == nil {
		return "none"
	}
	return fmt.Sprint(*d)
}
