package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coder/websocket"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/shell"
	"github.com/headway-rl/headway/internal/kubernetes"
)

// Channels of a command's WebSocket: the first byte of every message.
const (
	stdinChannel, stdoutChannel, stderrChannel, errorChannel = 0, 1, 2, 3
)

// frame is the most of standard input that goes into one message.
const frame = 32 << 10

// execution is a command in a pod.
type execution struct {
	command []string
	stdin   []byte
	// stdout and stderr are kept as far as they say.
	stdout, stderr shell.Stream
	// over is called once when a stream was 64 times as long as is kept.
	over func()
}

// errNoExit is wrapped by the error of a command whose end nobody told.
var errNoExit = errors.New("the connection ended before the command")

// run runs a command in a pod to its end and returns its exit code.
func (e *execution) run(ctx context.Context, a *kubernetes.API, namespace, pod, container string) (exit int, err error) {
	query := url.Values{"command": e.command, "stdout": {"true"}, "stderr": {"true"}, "stdin": {strconv.FormatBool(len(e.stdin) > 0)}}
	if container != "" {
		query.Set("container", container)
	}
	header, err := a.Header()
	if err != nil {
		return 0, classed("run", "", err)
	}
	address := a.URL() + "/api/v1/namespaces/" + namespace + "/pods/" + pod + "/exec?" + query.Encode()
	conn, response, err := websocket.Dial(ctx, address, &websocket.DialOptions{
		HTTPClient: a.Client(), HTTPHeader: header, Subprotocols: []string{"v5.channel.k8s.io", "v4.channel.k8s.io"},
	})
	if err != nil {
		if response != nil && response.StatusCode != http.StatusSwitchingProtocols {
			text, _ := io.ReadAll(response.Body) // its beginning, which Dial has read
			return 0, classed("run", "", kubernetes.Refusal(response.StatusCode, text))
		}
		return 0, sandbox.Fail(sandbox.Lost, "run", "", "no connection to the pod: %w", err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(16 << 20)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		e.send(ctx, conn)
	}()
	exit, err = e.receive(ctx, conn)
	cancel()
	<-sent
	return exit, err
}

// send writes standard input. That nobody reads it any more is no error: the command's end says what is.
func (e *execution) send(ctx context.Context, conn *websocket.Conn) {
	message := make([]byte, 0, frame+1)
	for rest := e.stdin; len(rest) > 0; {
		n := min(len(rest), frame)
		message = append(append(message[:0], stdinChannel), rest[:n]...)
		if conn.Write(ctx, websocket.MessageBinary, message) != nil {
			return
		}
		rest = rest[n:]
	}
}

func (e *execution) receive(ctx context.Context, conn *websocket.Conn) (exit int, err error) {
	over := false
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errNoExit, err)
		}
		if len(message) == 0 {
			continue
		}
		switch text := message[1:]; message[0] {
		case stdoutChannel:
			e.stdout.Add(text)
		case stderrChannel:
			e.stderr.Add(text)
		case errorChannel:
			return exitCode(text)
		default:
			return 0, sandbox.Fail(sandbox.Protocol, "run", "", "a message on channel %d of a command", message[0])
		}
		if !over && (e.stdout.Floods() || e.stderr.Floods()) {
			over = true
			e.over()
		}
	}
}

// exitCode reads the status that a command's connection ends with.
func exitCode(text []byte) (int, error) {
	var s kubernetes.Status
	if err := json.Unmarshal(text, &s); err != nil {
		return 0, sandbox.Fail(sandbox.Protocol, "run", "", "%.200q is no status of a command: %w", text, err)
	}
	if s.Status == "Success" {
		return 0, nil
	}
	for _, cause := range s.Details.Causes {
		if cause.Reason == "ExitCode" {
			exit, err := strconv.Atoi(cause.Message)
			if err != nil || exit < 0 || exit > 255 {
				return 0, sandbox.Fail(sandbox.Protocol, "run", "", "the exit code is %.100q", cause.Message)
			}
			return exit, nil
		}
	}
	if strings.Contains(s.Message, "executable file not found") || strings.Contains(s.Message, "no such file or directory") {
		return 0, sandbox.Fail(sandbox.StartFailed, "run", "", "the image has no /bin/sh: %s", s.Message)
	}
	return 0, sandbox.Fail(sandbox.Lost, "run", "", "%s: %s", s.Reason, s.Message)
}
