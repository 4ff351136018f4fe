// Command uetdump prints captures of Ultra Ethernet Transport as text, follows one packet
// delivery context or message through them, and explains what a stalled one waits for.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the capture ends in the middle of something, or cannot be read
	exitUsage  = 2
)

func main() {
	cfg, code := parse(os.Args[1:], os.Stdout, os.Stderr)
	if cfg == nil {
		os.Exit(code)
	}
	os.Exit(run(cfg, os.Stdin, os.Stdout, os.Stderr))
}

// run reads one capture and prints what cfg asks for.
func run(cfg *Config, stdin io.Reader, stdout, stderr io.Writer) int {
	fail := func(err error) int {
		fmt.Fprintf(stderr, "uetdump: %v\n", err)
		return exitFailed
	}
	var keys *keyring
	var err error
	if cfg.Keys != "" {
		if keys, err = loadKeys(cfg.Keys); err != nil {
			fmt.Fprintf(stderr, "uetdump: --keys: %v (see uetdump -h)\n", err)
			return exitUsage
		}
	}
	in := stdin
	if cfg.File != "-" {
		f, err := os.Open(cfg.File)
		if err != nil {
			return fail(err)
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.IsDir() {
			return fail(fmt.Errorf("%s is a folder: give a capture file in it", cfg.File))
		}
		in = f
	}
	out := bufio.NewWriter(stdout)
	err = dump(cfg, keys, in, out)
	if e := out.Flush(); err == nil {
		err = e
	}
	if err != nil {
		return fail(fmt.Errorf("%s: %w", cfg.File, err))
	}
	return exitOK
}

// dump is run with its files open.
func dump(cfg *Config, keys *keyring, in io.Reader, out io.Writer) error {
	r, err := openCapture(in)
	if err != nil {
		return err
	}
	dec := &decoder{ports: cfg.Ports, allPorts: cfg.AllPorts, keys: keys}
	pr := newPrinter(cfg, out)
	var f frame
	for err == nil && !pr.done() {
		if err = r.next(&f); err == nil {
			pr.begin(&f)
			dec.frame(&f, pr.packet)
		}
		if b, ok := out.(*bufio.Writer); ok && cfg.File == "-" && pr.err == nil {
			pr.err = b.Flush() // somebody watches
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("broken after %d packets: %w", r.n, err)
	}
	if e := pr.end(dec); err == nil {
		err = e
	}
	return err
}
