// Package servertls is the TLS of the Go servers, so that none is handicapped.
package servertls

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
)

// Files are PEM. Without a certificate there is no TLS.
type Files struct{ Certificate, Key, ClientCA string }

// Flags registers the fields of f, so that every program spells them alike.
func (f *Files) Flags(fs *flag.FlagSet) {
	fs.StringVar(&f.Certificate, "cert", "", "certificate file: serve TLS")
	fs.StringVar(&f.Key, "key", "", "key file")
	fs.StringVar(&f.ClientCA, "client-ca", "", "CA file: clients must show a certificate of it")
}

// Config is nil without a certificate.
func (f Files) Config() (*tls.Config, error) {
	if f.Certificate == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	if f.ClientCA != "" {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs, err = Pool(f.ClientCA)
	}
	return config, err
}

// Pool reads a CA file.
func Pool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", file)
	}
	return pool, nil
}
