package traffic

// postSimply is what Post does for many messages of a stream of which nothing is lost, checked or
// injected. A sender of 8-byte messages does little else than this for each.
func (t *stream) postSimply(most int64) error {
	n := min(len(t.tx), len(t.ready))
	if most >= 0 {
		n = int(min(int64(n), most-t.posted))
	}
	if n <= 0 {
		return nil
	}
	kept := len(t.ready) - n
	next := t.ready[kept:]
	sent, err := t.Conn.SendAll(next, t.posted)
	t.posted += int64(sent)
	t.ready = append(t.ready[:kept], next[sent:]...)
	if err != nil {
		return postError(err)
	}
	return nil
}
