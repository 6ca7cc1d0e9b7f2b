package pages

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/headway-rl/headway/internal/connections"
	"github.com/headway-rl/headway/internal/failure"
)

// DefaultListen is where pages are served by default.
const DefaultListen = "127.0.0.1:7070"

// viewPorts is how many ports from the default one on are tried.
const viewPorts = 32

// CheckListen refuses addresses that others can reach: the pages show prompts and responses.
func CheckListen(address string) error {
	const hint = "HOST:PORT with a host of this machine, such as 127.0.0.1:7070; from elsewhere: ssh -L 7070:127.0.0.1:7070 HOST"
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return failure.Usage(hint, "--listen %s is not an address: %w", address, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return failure.Usage(hint, "--listen %s can be reached from other machines, and the pages are not encrypted", address)
	}
	return nil
}

// FirstFree listens on an address or, where something listens there, on the next ports. In the end it takes any
// free port.
func FirstFree(address string) (net.Listener, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.LookupPort("tcp", text)
	if err != nil {
		return nil, err
	}
	for next := port; next < port+viewPorts && next < 1<<16; next++ {
		if listener, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(next))); err == nil {
			return listener, nil
		}
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// viewDrain is how long answers under way may take at the end.
const viewDrain = 2 * time.Second

// Serve serves on a listener, which it closes, until the context ends. Data is for those with the token.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, token string) error {
	bound := connections.New(0)
	server := &http.Server{Handler: bound.Handler(sameSite(withToken(token, handler))), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- bound.Serve(server, listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), viewDrain)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	<-served
	return nil
}

// sameSite refuses requests under a foreign name: a page elsewhere that resolves its own name to this machine
// would read the run otherwise.
func sameSite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "ask this machine by its address, 127.0.0.1 or localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withToken refuses data to those without the token: other users of this machine reach its loopback too. The
// pages themselves hold nothing of a run.
func withToken(token string, next http.Handler) http.Handler {
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := []byte(r.Header.Get("Authorization"))
		if strings.HasPrefix(r.URL.Path, viewPrefix) && subtle.ConstantTimeCompare(given, want) != 1 {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"code":"unauthorized","message":"the token of this dashboard is in the link that headway printed"}}`))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// viewPrefix is of the paths that have data of a run. Others have none.
const viewPrefix = "/api/v1/view/"
