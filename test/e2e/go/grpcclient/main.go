// Command grpcclient is a grpc-go client that finds its servers by xDS, with its bootstrap in the file that
// GRPC_XDS_BOOTSTRAP names. Each line on stdin, `ID TARGET SECONDS`, is a call with this deadline; on stdout follows
// `ID answer NAME` or `ID error CODE MESSAGE`.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds"
)

// plain takes a message's bytes as they are.
type plain struct{}

func (plain) Name() string                  { return "proto" }
func (plain) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (plain) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte{}, data...)
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "grpcclient:", err)
		os.Exit(1)
	}
}

func run() error {
	fmt.Println("version", grpc.Version)
	channels := map[string]*grpc.ClientConn{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var id, target string
		var seconds int
		if _, err := fmt.Sscan(lines.Text(), &id, &target, &seconds); err != nil {
			return err
		}
		if channels[target] == nil {
			channel, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.ForceCodec(plain{})))
			if err != nil {
				return err
			}
			channels[target] = channel
		}
		channel := channels[target] // the map is this loop's alone
		go func() { fmt.Println(id, call(channel, time.Duration(seconds)*time.Second)) }()
	}
	return lines.Err()
}

func call(channel *grpc.ClientConn, deadline time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var request, answer []byte
	if err := channel.Invoke(ctx, "/test.Backend/Who", &request, &answer); err != nil {
		failed := status.Convert(err)
		return fmt.Sprintf("error %d %s", failed.Code(), strings.ReplaceAll(failed.Message(), "\n", " "))
	}
	return "answer " + string(answer)
}
