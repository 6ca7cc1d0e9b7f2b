package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// pairs compares the tokens per second of a real vLLM with and without the gateway, in pairs of
// rounds whose order changes, and prints the mean of their ratios with its 95 % interval.
func pairs(url, model string, streams, tokens, rounds int) error {
	dir, err := os.MkdirTemp("", "headway-gateway-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ours, stop, err := headway(dir, url, model, streams)
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
	var ratios, speeds []float64
	for round := range rounds + 1 {
		order := []*arm{direct, ours}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		speed := map[*arm]float64{}
		for _, a := range order {
			if speed[a], err = a.tokensPerSecond(name, streams, tokens); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
		}
		if round > 0 { // the first warms up
			ratios, speeds = append(ratios, speed[ours]/speed[direct]), append(speeds, speed[direct])
		}
	}
	mean, half := interval(ratios)
	fmt.Printf("%s, %d streams of %d tokens, %d pairs: %.0f tokens/s direct (median), through the gateway %.3f of it (95 %% interval %.3f to %.3f)\n",
		url, streams, tokens, rounds, median(speeds), mean, mean-half, mean+half)
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

// tokensPerSecond has all streams run at once, and sums up what their usage says.
func (a *arm) tokensPerSecond(model string, streams, tokens int) (float64, error) {
	var wg sync.WaitGroup
	counts, errs := make([]int, streams), make([]error, streams)
	began := time.Now()
	for i := range streams {
		wg.Go(func() { counts[i], errs[i] = a.count(model, tokens) })
	}
	wg.Wait()
	seconds, sum := time.Since(began).Seconds(), 0
	for i, err := range errs {
		if err != nil {
			return 0, err
		}
		sum += counts[i]
	}
	return float64(sum) / seconds, nil
}

// count reads one stream to its end and returns the tokens that its usage has.
func (a *arm) count(model string, tokens int) (int, error) {
	url, header, end, err := a.begin()
	if err != nil {
		return 0, err
	}
	body, _ := json.Marshal(map[string]any{"model": model, "prompt": ids, "max_tokens": tokens, "stream": true, "temperature": 1, "top_p": 1, "top_k": 0,
		"logprobs": 0, "return_token_ids": true, "stream_options": map[string]any{"include_usage": true}})
	req, err := http.NewRequest(http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		return 0, fmt.Errorf("%s: %s", res.Status, text)
	}
	lines, used := bufio.NewScanner(res.Body), 0
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || !bytes.Contains(data, []byte(`"completion_tokens"`)) {
			continue
		}
		var event struct {
			Usage struct {
				Tokens int `json:"completion_tokens"`
			}
		}
		if json.Unmarshal(data, &event) == nil && event.Usage.Tokens > 0 {
			used = event.Usage.Tokens
		}
	}
	if err := lines.Err(); err != nil || used == 0 {
		return 0, fmt.Errorf("the stream ended without its usage: %w", err)
	}
	return used, end()
}

// interval is the mean of values and half the width of its 95 % interval by Student's t.
func interval(values []float64) (mean, half float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	t := 1.96 + 2.4/(n-1) + 3/((n-1)*(n-1)) // within 2 % of the quantile from 4 values on
	return mean, t * math.Sqrt(squares/(n-1)/n)
}
