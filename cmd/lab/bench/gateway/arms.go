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
	"strconv"
	"strings"
	"sync"
	"time"
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
func (a *arm) round(e *engine, s settings) (result, error) {
	e.round(s)
	before, err := processorTime(a.pid)
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
	after, err := processorTime(a.pid)
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
	latencies, err := follow(res.Body, events)
	if err != nil {
		return nil, err
	}
	return latencies, end()
}

// follow reads the events of a stream: the time of sending stands in each one's text.
func follow(content io.Reader, events int) ([]float64, error) {
	lines := bufio.NewReaderSize(content, 4<<20) // a gateway may put many tokens into one event
	out := make([]float64, 0, events)
	mark := []byte(`"text":"`)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return out, fmt.Errorf("the stream broke off after %d of %d events: %w", len(out), events, err)
		}
		if bytes.HasPrefix(line, []byte("data: [DONE]")) {
			break
		}
		now := time.Now().UnixNano()
		for at := bytes.Index(line, mark); at >= 0; at = bytes.Index(line, mark) {
			line = line[at+len(mark):]
			for len(line) > timeDigits && line[0] >= '0' && line[0] <= '9' { // an event may have several tokens
				if sent, err := strconv.ParseInt(string(line[:timeDigits]), 10, 64); err == nil {
					out = append(out, float64(now-sent)/1e6)
				}
				line = line[timeDigits:]
			}
		}
	}
	if len(out) != events {
		return out, fmt.Errorf("%d tokens came of %d", len(out), events)
	}
	return out, nil
}

// processorTime is what a process and all its threads have used, in seconds.
func processorTime(pid int) (float64, error) {
	if pid == 0 {
		return 0, nil
	}
	sum := 0.0
	pids := []int{pid}
	for len(pids) > 0 {
		p := pids[0]
		pids = pids[1:]
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		for _, f := range fields[11:13] { // utime and stime, in hundredths
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return 0, err
			}
			sum += n / 100
		}
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p, p))
		if err != nil {
			continue
		}
		for _, c := range strings.Fields(string(children)) {
			n, _ := strconv.Atoi(c)
			pids = append(pids, n)
		}
	}
	return sum, nil
}
