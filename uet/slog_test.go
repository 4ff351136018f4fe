package uet_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"go.uber.org/zap"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// An endpoint that is given a logger of log/slog writes its lines there, with their fields and
// levels.
func TestSlog(t *testing.T) {
	var out bytes.Buffer // written by one goroutine at a time, and not after Close
	hints := &uet.Info{}
	hints.Config.Slog = slog.New(slog.NewJSONHandler(&out, nil)).With("who", "test")
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
	quiet.Config.Slog = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))
	e = openWith("127.0.0.1", quiet)
	if err := e.Close(); err != nil || out.Len() > 0 {
		t.Errorf("%v, %s", err, out.String())
	}

	hints.Config.Logger = zap.NewNop()
	var e2 *uet.InfoError
	if _, err := uet.GetInfo("", "", 0, hints); !errors.Is(err, fi.ENODATA) || !errors.As(err, &e2) || e2.Reasons[0].Field != "Config" {
		t.Errorf("two loggers: %v", err)
	}
}
