package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"sync"
	"time"

	"fanoutbench/internal/servertls"
)

// secure serves each TLS connection from a goroutine.
type secure struct {
	addr    string
	configs []*tls.Config // by client
	resumed chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	wait    sync.WaitGroup
}

func newSecure(addr string, configs []*tls.Config) *secure {
	ctx, cancel := context.WithCancel(context.Background())
	return &secure{addr: addr, configs: configs, resumed: make(chan struct{}), ctx: ctx, cancel: cancel}
}

func (s *secure) connect(c *client) error {
	raw, err := net.DialTimeout("tcp", s.addr, 10*time.Second)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(s.ctx, func() { raw.Close() })
	s.wait.Go(func() {
		defer stop()
		defer raw.Close()
		if err := s.serve(c, tls.Client(raw, s.configs[c.index])); err != nil && s.ctx.Err() == nil {
			c.run.tally.broke(c, err)
		}
	})
	return nil
}

func (s *secure) serve(c *client, conn *tls.Conn) error {
	if err := conn.HandshakeContext(s.ctx); err != nil {
		return err
	}
	c.run.tally.handshaken(conn.ConnectionState().DidResume)
	buf := make([]byte, 17<<10) // a TLS record
	for {
		if len(c.session.out) > 0 {
			if _, err := conn.Write(c.session.out); err != nil {
				return err
			}
			c.session.out = c.session.out[:0]
		}
		if c.stall() {
			select {
			case <-s.resumed:
			case <-s.ctx.Done():
			}
		}
		n, err := conn.Read(buf)
		if err != nil {
			return err
		}
		c.run.tally.read(n)
		if err := c.session.receive(buf[:n], c.response); err != nil {
			return err
		}
	}
}

func (s *secure) resume() { close(s.resumed) }

func (s *secure) close() {
	s.cancel()
	s.wait.Wait()
}

// clientConfigs are the TLS of each client, for all storms. With -sign each has a certificate of its own, as the
// workloads of a mesh: one for all would make them one client to a server that counts by identity.
func clientConfigs(o options) ([]*tls.Config, error) {
	roots, err := servertls.Pool(o.ca)
	if err != nil {
		return nil, err
	}
	var authority tls.Certificate
	if o.sign != "" {
		if authority, err = tls.LoadX509KeyPair(o.ca, o.sign); err != nil {
			return nil, err
		}
	}
	configs := make([]*tls.Config, o.streams)
	for i := range configs {
		config := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"},
			CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}} // Envoy's
		if o.tls12 {
			config.MaxVersion = tls.VersionTLS12
		}
		if o.sign != "" {
			pair, err := clientCertificate(authority, i)
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		if o.resume {
			config.ClientSessionCache = &lastSession{}
		}
		configs[i] = config
	}
	return configs, nil
}

// clientCertificate is that of a workload: P-256, named by a SPIFFE URI.
func clientCertificate(authority tls.Certificate, index int) (tls.Certificate, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(int64(index) + 2), // 1 is the authority's
		Subject:      pkix.Name{CommonName: fmt.Sprintf("client-%06d", index)},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		URIs:     []*url.URL{{Scheme: "spiffe", Host: "fanoutbench", Path: fmt.Sprintf("/client/%06d", index)}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority.Leaf, private.Public(), authority.PrivateKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}, err
}

// lastSession is the newest TLS session of one client. Its connections come one after the other.
type lastSession struct{ state *tls.ClientSessionState }

func (l *lastSession) Get(string) (*tls.ClientSessionState, bool) { return l.state, l.state != nil }

func (l *lastSession) Put(_ string, state *tls.ClientSessionState) { l.state = state }
