package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/paired"
)

// pairs compares the tokens per second of a real vLLM with and without the gateway, in pairs of
// rounds whose order changes, and prints the mean of their ratios with its 95 % interval.
func pairs(url, model string, streams, tokens, rounds int) error {
	dir, err := os.MkdirTemp("", "headway-gateway-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ours, stop, err := headway("", dir, url, model, streams)
	if err != nil {
		return err
	}
	defer stop()
	name, err := served(url)
	if err != nil {
		return err
	}
	direct := &arm{name: "direct", begin: func() (string, http.Header, func() error, error) {
		return url, http.Header{}, func() error { return nil }, nil
	}}
	var whole, streaming, speeds []float64
	for round := range rounds + 1 {
		order := []*arm{direct, ours}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		speed := map[*arm]pace{}
		for _, a := range order {
			if speed[a], err = a.tokensPerSecond(name, streams, tokens); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
		}
		if round > 0 { // the first warms up
			speeds = append(speeds, speed[direct].streaming)
			streaming = append(streaming, speed[ours].streaming/speed[direct].streaming)
			whole = append(whole, speed[ours].whole/speed[direct].whole)
		}
	}
	fmt.Printf("%s, %d streams of %d tokens, %d pairs: %.0f tokens/s direct (median)\n", url, streams, tokens, rounds, median(speeds))
	for _, r := range []struct {
		what   string
		ratios []float64
	}{{"from the first token to the last", streaming}, {"with claim, first token and finish", whole}} {
		mean, half := paired.Interval(r.ratios)
		fmt.Printf("through the gateway %.3f of it (95 %% interval %.3f to %.3f; median %.3f), %s\n", mean, mean-half, mean+half, median(r.ratios), r.what)
	}
	return nil
}

// served is the name by which a server knows its model.
func served(url string) (string, error) {
	res, err := http.Get(url + "/v1/models")
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil || len(list.Data) == 0 {
		return "", fmt.Errorf("%s lists no models: %w", url, err)
	}
	return list.Data[0].ID, nil
}

// pace is the tokens a second of a round: over all of it, and between the first token of any stream
// and the last of any.
type pace struct{ whole, streaming float64 }

// streamed is what one stream brought, and when.
type streamed struct {
	tokens      int
	first, last time.Time
}

// tokensPerSecond has all streams run at once, and sums up what their usage says.
func (a *arm) tokensPerSecond(model string, streams, tokens int) (pace, error) {
	var wg sync.WaitGroup
	all, errs := make([]streamed, streams), make([]error, streams)
	began := time.Now()
	for i := range streams {
		wg.Go(func() { all[i], errs[i] = a.count(model, tokens) })
	}
	wg.Wait()
	seconds, sum := time.Since(began).Seconds(), 0
	first, last := all[0].first, all[0].last
	for i, s := range all {
		if errs[i] != nil {
			return pace{}, errs[i]
		}
		sum += s.tokens
		if s.first.Before(first) {
			first = s.first
		}
		if s.last.After(last) {
			last = s.last
		}
	}
	return pace{float64(sum) / seconds, float64(sum) / last.Sub(first).Seconds()}, nil
}

// count reads one stream to its end, and the tokens that its usage has.
func (a *arm) count(model string, tokens int) (streamed, error) {
	url, header, end, err := a.begin()
	if err != nil {
		return streamed{}, err
	}
	body, _ := json.Marshal(map[string]any{"model": model, "prompt": ids, "max_tokens": tokens, "stream": true, "temperature": 1, "top_p": 1, "top_k": 0,
		"logprobs": 0, "return_token_ids": true, "stream_options": map[string]any{"include_usage": true}})
	req, err := http.NewRequest(http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return streamed{}, err
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return streamed{}, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		return streamed{}, fmt.Errorf("%s: %s", res.Status, text)
	}
	var s streamed
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if ok && !bytes.HasPrefix(data, []byte("[")) {
			if s.last = time.Now(); s.first.IsZero() {
				s.first = s.last
			}
		}
		if !ok || !bytes.Contains(data, []byte(`"completion_tokens"`)) {
			continue
		}
		var event struct {
			Usage struct {
				Tokens int `json:"completion_tokens"`
			}
		}
		if json.Unmarshal(data, &event) == nil && event.Usage.Tokens > 0 {
			s.tokens = event.Usage.Tokens
		}
	}
	if err := lines.Err(); err != nil || s.tokens == 0 {
		return s, fmt.Errorf("the stream ended without its usage: %w", err)
	}
	return s, end()
}
