package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/quic-go/quic-go"
)

// The baselines of sealed transfers: a stream of quic-go, which is encrypted too, and the
// speed of AES-256-GCM alone.

// lasts is how long each baseline runs.
const lasts = 2 * time.Second

// quicStream runs one end of a transfer over one QUIC stream. The receiver confirms when it
// has everything, so that only arrived bytes are counted.
func quicStream(args []string) error {
	fs := flag.NewFlagSet("quic", flag.ExitOnError)
	serve := fs.Bool("serve", false, "server end")
	addr := fs.String("addr", "127.0.0.1:0", "server's address")
	fs.Parse(args)
	ctx := context.Background()
	cfg := &quic.Config{ // as much as it can use
		InitialStreamReceiveWindow: 16 << 20, MaxStreamReceiveWindow: 64 << 20,
		InitialConnectionReceiveWindow: 16 << 20, MaxConnectionReceiveWindow: 64 << 20,
		InitialPacketSize: 1452,
	}
	if *serve {
		cert, err := selfSigned()
		if err != nil {
			return err
		}
		l, err := quic.ListenAddr(*addr, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"bars"}}, cfg)
		if err != nil {
			return err
		}
		fmt.Println(l.Addr().(*net.UDPAddr).AddrPort())
		c, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		s, err := c.AcceptStream(ctx)
		if err != nil {
			return err
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{s}, make([]byte, 1<<20))
		if err != nil {
			return err
		}
		if err := binary.Write(s, binary.BigEndian, n); err != nil {
			return err
		}
		s.Close()
		<-c.Context().Done()
		return nil
	}
	// A baseline need not authenticate its own server.
	c, err := quic.DialAddr(ctx, *addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"bars"}}, cfg)
	if err != nil {
		return err
	}
	s, err := c.OpenStream()
	if err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	sent, begin := int64(0), time.Now()
	for time.Since(begin) < lasts {
		n, err := s.Write(b)
		if sent += int64(n); err != nil {
			return err
		}
	}
	s.Close()
	var got int64
	if err := binary.Read(s, binary.BigEndian, &got); err != nil {
		return err
	}
	if got != sent {
		return fmt.Errorf("%d bytes of %d arrived", got, sent)
	}
	took := time.Since(begin)
	c.CloseWithError(0, "")
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{"GBps": float64(got) / took.Seconds() / 1e9})
}

func selfSigned() (tls.Certificate, error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, pub, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Bytes of a sealed packet besides its message: headers that are encrypted, and headers
// that are only authenticated.
const (
	sealedHdr = 56
	sealedAAD = 36
)

// gcm seals or opens packets in memory and reports the bytes of messages.
func gcm(args []string) error {
	fs := flag.NewFlagSet("gcm", flag.ExitOnError)
	open := fs.Bool("open", false, "open, not seal")
	size := fs.Int("size", 1024, "message bytes per packet")
	fs.Parse(args)
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		return err
	}
	a, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	nonce, aad := make([]byte, 12), make([]byte, sealedAAD)
	plain := make([]byte, *size+sealedHdr)
	out := make([]byte, 0, len(plain)+16)
	sealed := a.Seal(nil, nonce, plain, aad)
	n, begin := 0, time.Now()
	for time.Since(begin) < lasts/2 {
		for range 256 {
			if n++; *open {
				if _, err := a.Open(out, nonce, sealed, aad); err != nil {
					return err
				}
				continue
			}
			binary.BigEndian.PutUint64(nonce[4:], uint64(n))
			out = a.Seal(out[:0], nonce, plain, aad)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{"GBps": float64(n) * float64(*size) / time.Since(begin).Seconds() / 1e9})
}

// gcmRun returns the speed of the slower of two ends that seal and open at the same time.
func gcmRun(self string, srv, cli side, size int) (float64, error) {
	var cmds [2]*exec.Cmd
	var outs [2]io.ReadCloser
	for i, s := range []side{cli, srv} {
		cmds[i] = s.command(self, "gcm", fmt.Sprintf("-open=%v", i == 1), fmt.Sprintf("-size=%d", size))
		var err error
		if outs[i], err = cmds[i].StdoutPipe(); err != nil {
			return 0, err
		}
		if err := cmds[i].Start(); err != nil {
			return 0, err
		}
		defer cmds[i].Wait()
	}
	slower := 0.0
	for i := range cmds {
		m := map[string]float64{}
		if err := json.NewDecoder(outs[i]).Decode(&m); err != nil {
			return 0, fmt.Errorf("gcm: %w", err)
		}
		if v := m["GBps"]; slower == 0 || v < slower {
			slower = v
		}
	}
	return slower, nil
}
