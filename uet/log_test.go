package uet_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/uetkit/uetkit/uet"
)

// An endpoint writes its lines to its logger, with their fields and
// levels.
func TestLogger(t *testing.T) {
	var out bytes.Buffer // written by one goroutine at a time, and not after Close
	hints := &uet.Info{}
	hints.Config.Logger = slog.New(slog.NewJSONHandler(&out, nil)).With("who", "test")
	e := openWith("127.0.0.1", hints)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	var line struct {
		Level, Msg, Who, Local, Interface string
		MTU                               int `json:"payload_mtu"`
	}
	if err := json.NewDecoder(&out).Decode(&line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if line.Level != "INFO" || line.Msg != "endpoint enabled" || line.Who != "test" || line.Local == "" || line.Interface == "" || line.MTU < 1024 {
		t.Errorf("%+v", line)
	}
	quiet := &uet.Info{}
	out.Reset()
	quiet.Config.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))
	e = openWith("127.0.0.1", quiet)
	if err := e.Close(); err != nil || out.Len() > 0 {
		t.Errorf("%v, %s", err, out.String())
	}
}
