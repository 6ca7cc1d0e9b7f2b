// Command publish measures how long a small version takes from the moment a trainer
// begins to publish it to the moment every engine serves it.
//
// It starts headway serve with an embedded engine that is busy generating. It leases batches and
// publishes a version for each, as a trainer does, over HTTP on loopback. Meanwhile it follows the
// event stream. It prints one line of percentiles.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
)

func main() {
	versions := flag.Int("versions", 1000, "versions to publish")
	flag.Parse()
	if err := measure(*versions); err != nil {
		fmt.Fprintln(os.Stderr, "publish:", err)
		os.Exit(1)
	}
}

// trainer is this program's side of the protocol.
type trainer struct {
	url    string
	model  []byte // the body of the newest model file, without its header
	header []byte
	served chan int64
}

func measure(versions int) error {
	dir, err := os.MkdirTemp("", "headway-publish-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := plane.Serve(dir, "--steps", fmt.Sprint(versions), "--set", "train.batch=16", "--set", "rollout.concurrency=16")
	if err != nil {
		return err
	}
	defer p.Stop()
	t := &trainer{url: p.URL, served: make(chan int64, 1024)}
	if err := t.connect(); err != nil {
		return err
	}
	if err := t.follow(); err != nil {
		return err
	}
	var times []float64
	for range versions {
		lease, err := t.lease()
		if err != nil {
			return err
		}
		began := time.Now()
		if err := t.publish(lease); err != nil {
			return err
		}
		if lease.Version+1 == int64(versions) {
			break // the run ends with it; nothing is synced any more
		}
		if err := t.await(lease.Version + 1); err != nil {
			return err
		}
		times = append(times, time.Since(began).Seconds()*1e3)
	}
	slices.Sort(times)
	at := func(q float64) float64 { return times[int(q*float64(len(times)-1))] }
	fmt.Printf("publish to served, %d versions of %d bytes, engine busy: p50 %.1f ms, p95 %.1f ms, p99 %.1f ms, worst %.1f ms\n",
		len(times), len(t.header)+len(t.model), at(0.5), at(0.95), at(0.99), at(1))
	return nil
}

// connect says hello and takes version 0.
func (t *trainer) connect() error {
	if _, err := t.post("/api/v1/trainers/connect", map[string]any{"trainer": "bench", "version": -1}); err != nil {
		return err
	}
	response, err := http.Get(t.url + "/api/v1/weights/0/files/model.safetensors")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if len(body) < 8 {
		return fmt.Errorf("version 0 has %d bytes", len(body))
	}
	head := 8 + int(binary.LittleEndian.Uint64(body))
	t.header, t.model = body[:head], body[head:]
	return nil
}

// follow reads the event stream for versions that are served.
func (t *trainer) follow() error {
	response, err := http.Get(t.url + "/api/v1/stream")
	if err != nil {
		return err
	}
	go func() {
		defer response.Body.Close()
		defer close(t.served)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			var event struct {
				Kind    string
				Version int64
			}
			if ok && json.Unmarshal([]byte(data), &event) == nil && event.Kind == "served" {
				t.served <- event.Version
			}
		}
	}()
	return nil
}

func (t *trainer) await(version int64) error {
	limit := time.After(30 * time.Second)
	for {
		select {
		case v, ok := <-t.served:
			if !ok {
				return errors.New("the event stream ended")
			}
			if v >= version {
				return nil
			}
		case <-limit:
			return fmt.Errorf("version %d was not served within 30 s", version)
		}
	}
}

// leased is what this program needs to know of a batch.
type leased struct {
	Lease, Version int64
	Attempt        int32
}

// lease takes a batch and reads what its header says.
func (t *trainer) lease() (l leased, err error) {
	for {
		body, err := t.post("/api/v1/batches/lease", map[string]any{"trainer": "bench", "wait_s": 30})
		if err != nil {
			return l, err
		}
		if len(body) < 8 {
			continue // none was ready
		}
		var header struct {
			Metadata map[string]string `json:"__metadata__"`
		}
		if err := json.Unmarshal(body[8:8+binary.LittleEndian.Uint64(body)], &header); err != nil {
			return l, err
		}
		return l, json.Unmarshal([]byte(header.Metadata["headway"]), &l)
	}
}

// publish sends the model as the next version, one byte of a weight changed.
func (t *trainer) publish(l leased) error {
	t.model[0] ^= 1
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="manifest"`}, "Content-Type": {"application/json"}})
	if err != nil {
		return err
	}
	manifest := map[string]any{"trainer": "bench", "lease": l.Lease, "attempt": l.Attempt, "version": l.Version + 1, "kind": "full",
		"files": []map[string]any{{"name": "model.safetensors", "size": len(t.header) + len(t.model)}}}
	if err := json.NewEncoder(part).Encode(manifest); err != nil {
		return err
	}
	file, err := form.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="model.safetensors"`}, "Content-Type": {"application/octet-stream"}})
	if err != nil {
		return err
	}
	_, _ = file.Write(t.header)
	_, _ = file.Write(t.model) // into memory
	if err := form.Close(); err != nil {
		return err
	}
	_, err = t.send("/api/v1/weights", form.FormDataContentType(), &body)
	return err
}

func (t *trainer) post(path string, message any) ([]byte, error) {
	text, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	return t.send(path, "application/json", bytes.NewReader(text))
}

func (t *trainer) send(path, kind string, body io.Reader) ([]byte, error) {
	response, err := http.Post(t.url+path, kind, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s: %.300s", path, response.Status, text)
	}
	return text, err
}
