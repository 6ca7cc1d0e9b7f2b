//go:build faketime

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/cmd/lab/world/machine"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

var policy = enginetest.Policy{Vocabulary: 64, EOS: 4, Length: 12}

const document = `
model: {path: model}
engines: [%s]
environment: {kind: remote, name: numbers, prompt_tokens_max: 64, response_tokens_max: 32}
rollout: {group_size: 4}
train: {batch: 8}
queue: {policy: bounded, eta: 1}
trainer: {kind: remote, steps: %d}
store: {dir: %s, samples_every: 0, nats: {url: "nats://%s:4222"}}
server: {listen: "%s:7070", token_file: tokens, lease_s: 10, claim_s: 10}
failures: {max_attempts: 20}
`

func main() {
	seed, _ := strconv.ParseUint(os.Args[1], 10, 64)
	steps, _ := strconv.Atoi(os.Args[2])
	w := machine.New(seed)
	if os.Getenv("WORLD_ORDER") != "" {
		w.KeepOrder(1 << 16)
		defer writeOrder(w)
	}
	began := time.Now()
	must(os.MkdirAll("model", 0o755))
	raw, err := weights.AppendHeader(nil, []weights.Entry{{Name: "lm_head.weight", DType: weights.F32, Shape: []int{1}}})
	must(err)
	tensor := append(raw, 0, 0, 0, 0)
	for name, content := range map[string][]byte{"config.json": []byte(`{"vocab_size": 64, "max_position_embeddings": 256}`), "tokenizer.json": []byte("{}"), weights.ModelName: tensor} {
		must(os.WriteFile(filepath.Join("model", name), content, 0o644))
	}
	must(os.WriteFile("tokens", []byte("trainer "+tok("t")+"\nenvironment "+tok("e")+"\nviewer "+tok("v")+"\nadmin "+tok("a")+"\nengine "+tok("g")+"\n"), 0o600))
	broker := w.Host("broker")
	broker.Go(func() {
		s, err := server.NewServer(&server.Options{ServerName: "n", Host: "0.0.0.0", Port: 4222, NoLog: true, NoSigs: true, JetStream: true, StoreDir: "nats", MaxPayload: 8 << 20, MaxPending: 512 << 20, JetStreamMaxStore: 1 << 60, JetStreamMaxMemory: 64 << 20})
		must(err)
		s.Start()
		select {}
	})
	engines := ""
	for i := range 2 {
		h := w.Host(fmt.Sprint("engine", i))
		h.Go(func() {
			enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: policy, Listen: 8000, Context: 256, Weights: "as started", Spans: i == 0, Step: 5 * time.Millisecond,
				Named: func(dir string) string { return filepath.Base(filepath.Dir(dir)) }})
			select {}
		})
		engines += fmt.Sprintf("{kind: vllm, name: e%d, url: \"http://%s:8000\", slots: 4}, ", i, h.IP)
	}
	time.Sleep(100 * time.Millisecond)
	p := w.Host("plane")
	ended := make(chan error, 1)
	p.Go(func() {
		must(os.WriteFile("run.yaml", fmt.Appendf(nil, document, engines[:len(engines)-2], steps, "runs", broker.IP, p.IP), 0o644))
		ended <- servePlane(p)
	})
	tr := w.Host("trainer")
	tr.Go(func() { train(p.IP, steps) })
	for i := range 4 {
		h := w.Host(fmt.Sprint("worker", i))
		h.Go(func() { play(p.IP, h.Name) })
	}
	err = <-ended
	picks, mix := w.Mix()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Println("ended", err, "after", time.Since(began), "picks", picks, mix, "alloc MB", m.TotalAlloc>>20, "gc", m.NumGC, "requests", calls)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func servePlane(h *machine.Host) error {
	cfg, err := config.LoadWith("run.yaml")
	must(err)
	l, err := net.Listen("tcp", cfg.Server.Listen)
	must(err)
	logs, err := os.Create(h.Name + ".log")
	must(err)
	a := &app.Process{Stdin: bytes.NewReader(nil), Stdout: logs, Stderr: logs, IsTerminal: func(any) bool { return false }, Getenv: func(string) string { return "" }, Now: time.Now}
	p, err := plane.New(a, record.Surroundings{Program: "world", Version: "0", Lines: func(string) record.View { return noView{} }, Pages: func(_, name string, header trace.Header) dashboard.Options {
		return dashboard.Options{Rules: header.Loop.WithDefaults()}
	}}, cfg, filepath.Join(cfg.Store.Dir, "serve"), "serve", l)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	err = p.Serve(ctx, cancel, nil)
	return errors.Join(err, p.Close())
}

var calls int

func call(ip, token, path string, kind string, body []byte, more ...string) (int, []byte) {
	for {
		req, _ := http.NewRequest("POST", "http://"+ip+":7070"+path, bytes.NewReader(body))
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Authorization", "Bearer "+token)
		if len(token) == 1 {
			req.Header.Set("Authorization", "Bearer "+tok(token))
		}
		for i := 0; i < len(more); i += 2 {
			req.Header.Set(more[i], more[i+1])
		}
		calls++
		r, err := http.DefaultClient.Do(req)
		if err == nil {
			text, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err == nil && r.StatusCode != 503 {
				if r.StatusCode >= 400 {
					fmt.Println(path, r.StatusCode, string(text))
				}
				return r.StatusCode, text
			}
		}
		time.Sleep(time.Second)
	}
}

func ask(ip, token, path string, in, out any, more ...string) int {
	raw, _ := json.Marshal(in)
	status, text := call(ip, token, path, "application/json", raw, more...)
	if out != nil && status == 200 {
		must(json.Unmarshal(text, out))
	}
	return status
}

func play(ip, name string) {
	for {
		var claims protocol.Claims
		switch ask(ip, "e", "/api/v1/rollouts/claim", protocol.ClaimRequest{Worker: name, Max: 2, WaitS: 5}, &claims) {
		case 200:
		case 204:
			continue
		default:
			return
		}
		for _, c := range claims.Rollouts {
			request := map[string]any{"model": "any", "prompt": []int32{5, 6 + int32(c.Prompt%50), 7}, "max_tokens": 32}
			if ask(ip, c.Key, "/v1/completions", request, nil) != 200 {
				continue
			}
			reward := float32(c.Sample % 2)
			ask(ip, "e", "/api/v1/rollouts/"+c.ID+"/finish", protocol.FinishRequest{Worker: name, Secret: c.Secret, Reward: &reward}, nil)
		}
	}
}

func train(ip string, steps int) {
	var hello protocol.ConnectReply
	ask(ip, "t", "/api/v1/trainers/connect", protocol.ConnectRequest{Trainer: "t", Version: -1}, &hello)
	for range steps {
		status, raw := call(ip, "t", "/api/v1/batches/lease", "application/json", []byte(`{"trainer":"t","wait_s":10}`))
		if status == 204 {
			continue
		}
		if status != 200 {
			return
		}
		b, err := batchtest.Decode(raw)
		must(err)
		time.Sleep(50 * time.Millisecond)
		publish(ip, b)
	}
}

func publish(ip string, b *batchtest.Tensors) {
	raw, _ := weights.AppendHeader(nil, []weights.Entry{{Name: "lm_head.weight", DType: weights.F32, Shape: []int{1}}})
	content := append(raw, byte(b.Lease.Version), 0, 0, 0)
	request := protocol.PublishRequest{
		Trainer: "t", Lease: b.Lease.Lease, Attempt: b.Lease.Attempt, Version: b.Lease.Version + 1, Kind: weights.KindFull, BaseVersion: loop.NoVersion,
		ForwardVersion: b.Lease.Version, StepVersion: b.Lease.Version, Files: []protocol.PublishFile{{Name: "policy.safetensors", Size: int64(len(content))}},
	}
	text, _ := json.Marshal(request)
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, part := range []struct {
		name    string
		content []byte
	}{{"manifest", text}, {"policy.safetensors", content}} {
		field, _ := form.CreateFormFile(part.name, part.name)
		field.Write(part.content)
	}
	form.Close()
	call(ip, "t", "/api/v1/weights", form.FormDataContentType(), body.Bytes())
}

func tok(role string) string { return role + "-0123456789abcdefghij" + role }

type noView struct{}

func (noView) Update(record.Progress) {}
func (noView) Message(string)         {}

func writeOrder(w *machine.World) {
	f, err := os.Create(os.Getenv("WORLD_ORDER"))
	must(err)
	for i, p := range w.Order() {
		at := runtime.FuncForPC(uintptr(p.PC))
		from := runtime.FuncForPC(uintptr(p.Start))
		if at != nil && from != nil {
			fmt.Fprintln(f, i, p.ID, p.AtNS-1767225600000000000, from.Name(), at.Name(), p.Random)
		}
	}
	f.Close()
}
