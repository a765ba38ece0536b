package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"fanoutbench/internal/payload"
)

// poller is a client and its connection. What it sends but for the version is made once.
type poller struct {
	addr    string
	timeout time.Duration
	node    string // as JSON
	version string
	conn    net.Conn
	reader  *bufio.Reader
}

type answer struct {
	status    int
	bytes     int // of the body
	seq       uint64
	resources int
	text      string // of a refusal
}

func newPoller(o options, index int) *poller {
	type object = map[string]any
	extensions := []object{}
	for size := 0; size < o.node-500; size += 160 {
		name := fmt.Sprintf("envoy.extensions.number.%d", len(extensions))
		extensions = append(extensions, object{"name": name, "category": "envoy.filters.http",
			"type_urls": []string{"type.googleapis.com/" + name + ".v3.SomeConfiguration"}})
	}
	node := object{"id": fmt.Sprintf("node-%06d", index), "cluster": "fleet", "user_agent_name": "envoy",
		"metadata": object{"env": o.spec.Env(0), "pad": strings.Repeat("p", 300)}, "extensions": extensions}
	encoded, err := json.Marshal(node)
	if err != nil {
		panic(err) // values of our own making
	}
	return &poller{addr: o.addr, timeout: o.timeout, node: string(encoded)}
}

// poll asks once, with the version of the last answer.
func (p *poller) poll() (answer, error) {
	if p.conn == nil {
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			return answer{}, err
		}
		p.conn, p.reader = conn, bufio.NewReaderSize(conn, 16<<10)
	}
	a, err := p.exchange()
	if err != nil {
		p.close()
	}
	return a, err
}

func (p *poller) exchange() (answer, error) {
	version := ""
	if p.version != "" {
		version = fmt.Sprintf(`"version_info":%q,`, p.version)
	}
	body := fmt.Sprintf(`{%s"node":%s,"type_url":"%s"}`, version, p.node, payload.ClusterType)
	head := fmt.Sprintf("POST /v3/discovery:clusters HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		p.addr, len(body))
	if err := p.conn.SetDeadline(time.Now().Add(p.timeout)); err != nil {
		return answer{}, err
	}
	if _, err := io.WriteString(p.conn, head+body); err != nil {
		return answer{}, err
	}
	resp, err := http.ReadResponse(p.reader, nil)
	if err != nil {
		return answer{}, err
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: resp.StatusCode, bytes: len(b)}
	if resp.StatusCode != http.StatusOK {
		a.text = string(b[:min(len(b), 200)])
		return a, nil
	}
	return p.read(a, b)
}

// read takes the version, the number of the update, and how many resources there are, without decoding all of them.
func (p *poller) read(a answer, body []byte) (answer, error) {
	version, ok := textAfter(body, "version_info", "versionInfo")
	if !ok {
		return a, errors.New("an answer without a version")
	}
	p.version = version
	_, a.seq, ok = payload.FindMarker(body)
	if !ok {
		return a, errors.New("an answer without the resource that changes")
	}
	a.resources = bytes.Count(body, []byte(`"@type"`))
	return a, nil
}

// textAfter is the string value of the first of these keys; protojson may put a space before it.
func textAfter(body []byte, keys ...string) (string, bool) {
	for _, key := range keys {
		_, rest, found := bytes.Cut(body, []byte(`"`+key+`":`))
		if !found {
			continue
		}
		rest = bytes.TrimPrefix(bytes.TrimLeft(rest, " "), []byte(`"`))
		value, _, found := bytes.Cut(rest, []byte(`"`))
		return string(value), found
	}
	return "", false
}

func (p *poller) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}
