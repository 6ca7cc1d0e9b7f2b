package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
	"github.com/headway-rl/headway/cmd/lab/bench/played"
)

// arm is one way from the agents to the engine.
type arm struct {
	name  string
	order int
	// pid is what stands between; 0 for nothing.
	pid int
	// prompt of a stream: ids, or text where ids are not taken.
	prompt any
	// begin gives a stream its address, headers and what is to be called at its end.
	begin func() (url string, header http.Header, end func() error, err error)
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}

// round has all streams run at once.
func (a *arm) round(e *played.Engine, s settings) (result, error) {
	e.Round(played.Round{Streams: s.streams, Pause: s.pause, Spread: s.spread})
	before, err := plane.ProcessorTime(a.pid)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	var wg sync.WaitGroup
	latencies, errs := make([][]float64, s.streams), make([]error, s.streams)
	for i := range s.streams {
		wg.Go(func() { latencies[i], errs[i] = a.stream(s.events) })
	}
	wg.Wait()
	r := result{seconds: time.Since(began).Seconds()}
	for i, err := range errs {
		if err != nil {
			return r, err
		}
		r.events += len(latencies[i])
		r.latencies = append(r.latencies, latencies[i]...)
	}
	after, err := plane.ProcessorTime(a.pid)
	r.cpu = after - before
	slices.Sort(r.latencies)
	return r, err
}

// stream reads one stream to its end, and returns how long each event took.
func (a *arm) stream(events int) ([]float64, error) {
	url, header, end, err := a.begin()
	if err != nil {
		return nil, err
	}
	body, _ := json.Marshal(map[string]any{"model": "policy", "prompt": a.prompt, "max_tokens": events, "stream": true,
		"temperature": 1, "logprobs": 0, "return_token_ids": true})
	req, err := http.NewRequest(http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		return nil, fmt.Errorf("%s: %s", res.Status, text)
	}
	latencies, err := played.Follow(res.Body, events)
	if err != nil {
		return nil, err
	}
	return latencies, end()
}
