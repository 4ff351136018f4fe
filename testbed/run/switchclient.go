package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

// A SwitchClient talks to the switch of a lab.
type SwitchClient struct{ http *http.Client }

// NewSwitchClient talks over a unix socket.
func NewSwitchClient(socket string) *SwitchClient {
	return &SwitchClient{&http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}}
}

// SwitchStats is the part of the answer to GET /stats that the runner needs.
type SwitchStats struct {
	Fabric fabric.Stats `json:"fabric"`
	Health struct {
		Drops    uint64        `json:"drops"`
		LateP99  time.Duration `json:"late_p99_ns"`
		PPS      float64       `json:"pps"`
		Oversize uint64        `json:"oversize"`
		Warnings []string      `json:"warnings"`
	} `json:"health"`
}

// Close ends idle connections.
func (c *SwitchClient) Close() { c.http.CloseIdleConnections() }

// do sends a request with body as JSON, unless it is nil, and decodes the answer into to.
func (c *SwitchClient) do(ctx context.Context, method, path string, body any, to any) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://switch"+path, r)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the switch answers %s: %s", resp.Status, strings.TrimSpace(string(b)))
	}
	if to == nil {
		return nil
	}
	return json.Unmarshal(b, to)
}

// Healthy asks whether the switch forwards.
func (c *SwitchClient) Healthy(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/healthz", nil, nil)
}

// Stats asks for the counters of the switch.
func (c *SwitchClient) Stats(ctx context.Context) (*SwitchStats, error) {
	var s SwitchStats
	return &s, c.do(ctx, http.MethodGet, "/stats", nil, &s)
}

// Series asks for the samples of the switch.
func (c *SwitchClient) Series(ctx context.Context) ([]result.Sample, error) {
	var s []result.Sample
	return s, c.do(ctx, http.MethodGet, "/series", nil, &s)
}

// Event carries out a change of the network now.
func (c *SwitchClient) Event(ctx context.Context, e fabric.Event) error {
	return c.do(ctx, http.MethodPost, "/events", e, nil)
}
