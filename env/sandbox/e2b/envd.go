package e2b

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/shell"
)

// refusal is the error of an answer that is none.
func refusal(op string, id sandbox.ID, response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
	var said struct{ Message string }
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		said.Message = string(text)
	}
	class := sandbox.Protocol
	switch code := response.StatusCode; {
	case code == http.StatusTooManyRequests, strings.Contains(string(text), "capacity"):
		class = sandbox.Quota
	case code == http.StatusNotFound && op != "create":
		class = sandbox.Lost
	case code == http.StatusInsufficientStorage:
		class = sandbox.Disk
	case code < 500:
		class = sandbox.Refused // the key, the template
	case op == "run" || op == "read" || op == "write" || op == "reset":
		class = sandbox.Lost // the proxy before the machines does not find this one
	case code >= 500:
		class = sandbox.BackendDown
	}
	return sandbox.Fail(class, op, id, "HTTP %d: %.1000s", response.StatusCode, said.Message)
}

// Flags of Connect's envelopes: one byte, then the length in four, then the message.
const (
	endOfStream = 2
	// envelopeMost bounds what envd says at once.
	envelopeMost = 16 << 20
)

// started is a command as envd is asked to start it.
type started struct {
	Process struct {
		Cmd  string   `json:"cmd"`
		Args []string `json:"args"`
	} `json:"process"`
	Stdin bool `json:"stdin"`
}

// event is what envd says of a command, in the JSON form of process.proto.
type event struct {
	Event struct {
		Data *struct{ Stdout, Stderr []byte }
		End  *struct {
			ExitCode int
			Exited   bool
			Status   string
			Error    string
		}
	}
}

// execution is a script in the sandbox, run by its shell.
type execution struct {
	script         string
	stdout, stderr shell.Stream
	// over is called once when a stream was 64 times as long as is kept.
	over func()
	// longest is when envd itself ends the command, should nobody here.
	longest time.Duration
	// answered: envd has begun with it.
	answered bool
}

// header is what envd asks for: its token, and the user by the name of basic authentication.
func (b *box) header(request *http.Request) {
	request.Header.Set("X-Access-Token", b.made.Token)
	request.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(b.driver.o.User+":")))
}

// start runs a script to its end and returns its exit code and the signal that ended it.
func (b *box) start(ctx context.Context, op string, e *execution) (exit int, signal string, err error) {
	var ask started
	ask.Process.Cmd, ask.Process.Args = "/bin/sh", []string{"-c", e.script}
	text, err := json.Marshal(ask)
	if err != nil {
		return 0, "", err
	}
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.envd+"/process.Process/Start", bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	b.header(request)
	request.Header.Set("Content-Type", "application/connect+json")
	request.Header.Set("Connect-Protocol-Version", "1")
	request.Header.Set("Connect-Timeout-Ms", strconv.FormatInt(e.longest.Milliseconds(), 10))
	request.Header.Set("Keepalive-Ping-Interval", "30") // proxies cut what is silent
	response, err := b.driver.client.Do(request)
	if err != nil {
		return 0, "", sandbox.Fail(sandbox.Lost, op, b.id, "no answer from the sandbox: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, "", refusal(op, b.id, response)
	}
	e.answered = true
	return b.receive(op, e, response.Body)
}

func (b *box) receive(op string, e *execution, from io.Reader) (exit int, signal string, err error) {
	var end *event
	over := false
	for {
		flags, text, err := envelope(from)
		if err != nil {
			return 0, "", sandbox.Fail(class(err), op, b.id, "the stream of the command: %w", err)
		}
		if flags&endOfStream != 0 {
			return b.ended(op, end, text)
		}
		var said event
		if err := json.Unmarshal(text, &said); err != nil {
			return 0, "", sandbox.Fail(sandbox.Protocol, op, b.id, "%.200q is no event of a command: %w", text, err)
		}
		if data := said.Event.Data; data != nil {
			e.stdout.Add(data.Stdout)
			e.stderr.Add(data.Stderr)
		}
		if said.Event.End != nil {
			end = &said
		}
		if !over && (e.stdout.Floods() || e.stderr.Floods()) {
			over = true
			e.over()
		}
	}
}

// errEnvelope is what is no envelope of Connect.
var errEnvelope = errors.New("no envelope of Connect")

func class(err error) sandbox.Class {
	if errors.Is(err, errEnvelope) {
		return sandbox.Protocol
	}
	return sandbox.Lost
}

func envelope(from io.Reader) (flags byte, text []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, nil, fmt.Errorf("it ended before the command: %w", err)
	}
	size := binary.BigEndian.Uint32(head[1:])
	if head[0]&^endOfStream != 0 || size > envelopeMost {
		return 0, nil, fmt.Errorf("%w: flags %d, %d bytes", errEnvelope, head[0], size)
	}
	text = make([]byte, size)
	_, err = io.ReadFull(from, text)
	return head[0], text, err
}

// ended reads the end of a stream: an error of Connect, or the end of the command before it.
func (b *box) ended(op string, end *event, text []byte) (exit int, signal string, err error) {
	var last struct {
		Error *struct{ Code, Message string }
	}
	if err := json.Unmarshal(text, &last); err != nil {
		return 0, "", sandbox.Fail(sandbox.Protocol, op, b.id, "%.200q is no end of a stream: %w", text, err)
	}
	if end == nil && last.Error != nil {
		class := sandbox.Lost
		switch last.Error.Code {
		case "invalid_argument", "unauthenticated", "permission_denied":
			class = sandbox.Refused
		case "resource_exhausted":
			class = sandbox.Quota
		}
		return 0, "", sandbox.Fail(class, op, b.id, "%s: %s", last.Error.Code, last.Error.Message)
	}
	if end == nil {
		return 0, "", sandbox.Fail(sandbox.Protocol, op, b.id, "the stream ended without the command")
	}
	if e := end.Event.End; !e.Exited {
		number, name := signalOf(e.Status)
		return 128 + number, name, nil
	}
	return end.Event.End.ExitCode, "", nil
}

// signalOf reads a signal from the words that Go has for it, as envd hands them on: "signal: killed".
func signalOf(status string) (number int, name string) {
	words, _ := strings.CutSuffix(strings.TrimPrefix(status, "signal: "), " (core dumped)")
	for n, name := range map[syscall.Signal]string{
		syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT", syscall.SIGILL: "SIGILL", syscall.SIGABRT: "SIGABRT",
		syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE", syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV", syscall.SIGPIPE: "SIGPIPE",
		syscall.SIGALRM: "SIGALRM", syscall.SIGTERM: "SIGTERM",
	} {
		if n.String() == words {
			return int(n), name
		}
	}
	return int(syscall.SIGKILL), "SIGKILL" // ended from outside, by whatever
}

// upload makes a file of the sandbox, as it is.
func (b *box) upload(ctx context.Context, op, path string, content []byte) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "content")
	if err != nil {
		return err
	}
	_, _ = file.Write(content) // to memory
	_ = form.Close()
	query := url.Values{"path": {path}, "username": {b.driver.o.User}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.envd+"/files?"+query.Encode(), &body)
	if err != nil {
		return err
	}
	b.header(request)
	request.Header.Set("Content-Type", form.FormDataContentType())
	response, err := b.driver.client.Do(request)
	if err != nil {
		return sandbox.Fail(sandbox.Lost, op, b.id, "no answer from the sandbox: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return refusal(op, b.id, response)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
