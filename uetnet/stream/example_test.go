package stream_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/uetkit/uetkit/uetnet/stream"
)

// A file goes over a stream. CloseWrite tells the receiver where it ends, and the receiver answers
// with the checksum of what it got.
func Example_fileTransfer() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	dir, _ := os.MkdirTemp("", "")
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, make([]byte, 5<<20), 0o600); err != nil {
		log.Fatal(err)
	}

	listener, err := stream.Listen(ctx, "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	go func() {
		c, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		sum := sha256.New()
		if _, err := io.Copy(sum, c); err != nil { // to the end of the file
			log.Fatal(err)
		}
		if _, err := c.Write(sum.Sum(nil)); err != nil {
			log.Fatal(err)
		}
	}()

	c, err := stream.Dial(ctx, listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	file, err := os.Open(name)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	sum := sha256.New()
	n, err := io.Copy(c, io.TeeReader(file, sum))
	if err != nil {
		log.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		log.Fatal(err)
	}
	theirs, err := io.ReadAll(c)
	fmt.Println(n, "bytes, the same there:", string(theirs) == string(sum.Sum(nil)), err)
	// Output: 5242880 bytes, the same there: true <nil>
}

// A stream is a net.Conn, so TLS goes over it as over TCP. Where both ends are yours, WithSecurity
// is shorter and hides the headers of the packets, too.
func Example_tls() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	certificate, roots := selfSigned("server.example")

	listener, err := stream.Listen(ctx, "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	secured := tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}})
	defer secured.Close()
	go func() {
		c, err := secured.Accept()
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()

	stream, err := stream.Dial(ctx, listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	c := tls.Client(stream, &tls.Config{RootCAs: roots, ServerName: "server.example"})
	defer c.Close()
	if _, err := c.Write([]byte("a secret")); err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	fmt.Printf("%s, %v, %s\n", buf[:n], err, tls.VersionName(c.ConnectionState().Version))
	// Output: a secret, <nil>, TLS 1.3
}

// selfSigned makes a certificate for a name, and the pool that trusts it.
func selfSigned(name string) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		log.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
