package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/keys"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/uet"
)

// runKeys makes or changes a folder of keys.
func runKeys(cfg *Config, stdout io.Writer) error {
	if cfg.Quiet {
		stdout = io.Discard
	}
	switch {
	case cfg.Rotate:
		said, err := keys.Rotate(cfg.Keys)
		if err != nil {
			return &usage{err}
		}
		fmt.Fprintf(stdout, "cluster key: %s\n", said)
		return nil
	case cfg.Remove != "":
		if err := keys.Remove(cfg.Keys, cfg.Remove); err != nil {
			return &usage{err}
		}
		fmt.Fprintf(stdout, "%s is not let in any more by who has this folder's file revoked; who knows the cluster key still is: --rotate it\n", cfg.Remove)
		return nil
	}
	files, err := keys.Make(cfg.Keys, cfg.Members, time.Now())
	if err != nil {
		return &usage{err}
	}
	fmt.Fprintf(stdout, "made in %s: %s\n", cfg.Keys, strings.Join(files, " "))
	fmt.Fprintf(stdout, "certificates are good for %d days; next, with this folder on both hosts:\n", keys.Life/(24*time.Hour))
	fmt.Fprintf(stdout, "    uetperf serve --keys %s\n    uetperf lat HOST -e msg --sec tls --keys %s\n", cfg.Keys, cfg.Keys)
	return nil
}

// loadKeys loads what the security of a test needs; nil without security.
func loadKeys(cfg *Config) (sec *uet.Security, err error) {
	switch cfg.Spec.Sec {
	case traffic.PSK:
		sec, err = keys.LoadPSK(cfg.Keys)
	case traffic.TLS:
		sec, err = keys.LoadTLS(cfg.Keys, cfg.As, keys.Client)
	}
	if err != nil {
		return nil, &usage{err}
	}
	return sec, nil
}
