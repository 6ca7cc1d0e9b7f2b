package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// events reads server-sent events off a stream.
type events struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
}

func (c *client) follow(headers ...string) *events {
	c.t.Helper()
	request, _ := http.NewRequest("GET", "http://"+c.address+"/api/v1/stream", nil)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		c.t.Fatal(err)
	}
	if kind := response.Header.Get("Content-Type"); response.StatusCode != 200 || kind != "text/event-stream" {
		c.t.Fatalf("%d %s", response.StatusCode, kind)
	}
	c.t.Cleanup(func() { response.Body.Close() })
	return &events{c.t, bufio.NewScanner(response.Body), func() { response.Body.Close() }}
}

// next returns the next line that is not empty, "" at the end.
func (e *events) next() string {
	for e.lines.Scan() {
		if line := e.lines.Text(); line != "" {
			return line
		}
	}
	return ""
}

func (e *events) want(lines ...string) {
	e.t.Helper()
	for _, want := range lines {
		if got := e.next(); !strings.HasPrefix(got, want) {
			e.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestStream(t *testing.T) {
	c := start(t, Options{StreamsMax: 2, Heartbeat: time.Hour}, nil)
	first := c.follow()
	hello := []string{"event: hello", `data: {"run":"reverse","state":"running","version":17`}
	first.want(hello...)
	// The test's plane has one channel for all, so that events are sent while one follows.
	c.plane.events <- []byte("{\"step\":1,\n\"loss\":2}")
	c.plane.events <- []byte(`{"step":2}`)
	first.want("event: update", `data: {"step":1, "loss":2}`, "event: update", `data: {"step":2}`)
	second := c.follow("Last-Event-ID", "12")
	second.want(hello...)
	if a := c.do("GET", "/api/v1/stream", ""); a.status != 429 {
		t.Errorf("a third one: %d", a.status)
	}
	second.close()
	close(c.plane.events)
	for line := first.next(); line != "event: dropped"; line = first.next() {
		if line == "" {
			t.Fatal("the stream ended without a word")
		}
	}
}

// The tokens of one role follow in half of the places: the operator follows beside them.
func TestStreamsOfARole(t *testing.T) {
	c := start(t, Options{StreamsMax: 4, Heartbeat: time.Hour, Tokens: testTokens(t)}, nil)
	viewer, admin := []string{"Authorization", "Bearer " + secrets["viewer"]}, []string{"Authorization", "Bearer " + secrets["admin"]}
	c.follow(viewer...).want("event: hello")
	c.follow(viewer...).want("event: hello")
	if a := c.do("HEAD", "/api/v1/stream", "", viewer...); a.status != 429 { // GET would never end where it is not refused
		t.Errorf("a third viewer: %d", a.status)
	}
	c.follow(admin...).want("event: hello")
	c.follow(admin...).want("event: hello")
	if a := c.do("HEAD", "/api/v1/stream", "", "Authorization", "Bearer "+secrets["trainer"]); a.status != 429 {
		t.Errorf("a fifth: %d", a.status)
	}
}

// Those who follow what the pages show count among the subscribers, of a role and of all.
func TestPagesCountAmongStreams(t *testing.T) {
	c := start(t, Options{StreamsMax: 4, Heartbeat: time.Hour, Tokens: testTokens(t)}, nil)
	leave, entered := make(chan struct{}), make(chan struct{}, 4)
	view := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-leave })
	if err := c.server.Mount(Ports{Plane: c.plane, View: view}); err != nil {
		t.Fatal(err)
	}
	defer close(leave)
	ask := func(role string) *line {
		l := c.dial()
		l.ask("GET", "/api/v1/view/stream", role)
		return l
	}
	refused := func(role string) {
		t.Helper()
		l := ask(role)
		replied := make(chan answer, 1)
		go func() { replied <- l.reply() }()
		select {
		case a := <-replied:
			if a.status != 429 || a.code() != protocol.CodeBusy {
				t.Errorf("one more of role %s: %d %s", role, a.status, a.body)
			}
		case <-entered:
			t.Errorf("one more of role %s follows", role)
		}
	}
	for range 2 {
		ask("viewer")
		<-entered
	}
	refused("viewer")
	if a := c.do("HEAD", "/api/v1/stream", "", "Authorization", "Bearer "+secrets["viewer"]); a.status != 429 {
		t.Errorf("the events: %d", a.status)
	}
	for range 2 {
		ask("admin")
		<-entered
	}
	refused("trainer")
}

// A silent stream has comments, and the server's end is said.
func TestStreamHeartbeat(t *testing.T) {
	c := start(t, Options{Heartbeat: time.Millisecond}, nil)
	e := c.follow()
	e.want("event: hello", "data: ", ": alive", ": alive")
	c.stop()
	for line := e.next(); line != "event: closing"; line = e.next() {
		if line != ": alive" {
			t.Fatalf("got %q", line)
		}
	}
}

// The pages need no token, and what they ask for does; before the run has begun here, that is refused with a reason.
func TestPages(t *testing.T) {
	file := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "file ", r.URL.Path) })
	c := start(t, Options{Tokens: testTokens(t), Pages: map[string]http.Handler{"/": file, "/core/a.js": file}}, nil)
	for _, path := range []string{"/", "/core/a.js"} {
		if a := c.do("GET", path, ""); a.status != 200 || a.body != "file "+path {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := c.do("GET", "/core/b.js", ""); a.status != 404 {
		t.Errorf("a file that is not there: %d", a.status)
	}
	if a := c.do("GET", "/api/v1/view/info", ""); a.status != 401 {
		t.Errorf("data without a token: %d", a.status)
	}
	auth := []string{"Authorization", "Bearer " + secrets["viewer"]}
	if a := c.do("GET", "/api/v1/view/info", "", auth...); a.status != 503 || !strings.Contains(a.body, "has not begun") {
		t.Errorf("before the run: %d %s", a.status, a.body)
	}
	view := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })
	if err := c.server.Mount(Ports{Plane: c.plane, View: view}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/v1/view/info", "/api/v1/view/findings", "/api/v1/view/stream"} {
		if a := c.do("GET", path, "", auth...); a.status != 200 || a.body != path {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// What was asked, answered and expected is for those who train on it, however its path is written.
func TestRolloutsAreReadByThoseWhoTrainOnThem(t *testing.T) {
	c := start(t, Options{Tokens: testTokens(t)}, nil)
	view := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "read") })
	if err := c.server.Mount(Ports{Plane: c.plane, View: view}); err != nil {
		t.Fatal(err)
	}
	for role, secret := range secrets {
		auth := []string{"Authorization", "Bearer " + secret}
		may := role == "trainer" || role == "admin"
		for _, path := range []string{"groups", "groups?limit=1", "groups/7", "groups/", "groups/7/turns", "%67roups", "grou%70s/7"} {
			a := c.do("GET", "/api/v1/view/"+path, "", auth...)
			if may && (a.status != 200 || a.body != "read") {
				t.Errorf("%s of %s: %d %s", path, role, a.status, a.body)
			}
			if !may && (a.status != 403 || !strings.Contains(a.body, "a token of role trainer or admin: this one is of role "+role)) {
				t.Errorf("%s of %s: %d %s", path, role, a.status, a.body)
			}
		}
		for _, path := range []string{"info", "summary", "queue", "tracks", "tile", "series", "findings", "frontier", "schedules", "stream"} {
			if a := c.do("GET", "/api/v1/view/"+path, "", auth...); a.status != 200 || a.body != "read" {
				t.Errorf("%s of %s: %d %s", path, role, a.status, a.body)
			}
		}
	}
	if a := c.do("GET", "/api/v1/view/groups", ""); a.status != 401 {
		t.Errorf("without a token: %d %s", a.status, a.body)
	}
}

var metricLine = regexp.MustCompile(`(?m)^([a-z_]+)(\{[^}]*\})? (\S+)$`)

func TestMetrics(t *testing.T) {
	c := start(t, Options{Version: "1.2.3", Tokens: testTokens(t)}, nil)
	c.plane.state.Stall = &protocol.Stall{SinceS: 61, Findings: []protocol.Finding{{Code: "no_trainer"}}}
	c.plane.state.Engines = []protocol.Engine{{Name: "e0", Version: 17, State: "running", Active: 3, Slots: 8,
		Server: &protocol.Server{Channels: []protocol.ServerChannel{{Name: "routed_experts", Answers: 40, Dropped: map[string]int64{"zeros": 2}}}}},
		{Name: "e1", State: "lost", Stages: []protocol.EngineVersion{{Stage: 0, Version: 16}, {Stage: 1, Version: 17}}}}
	c.plane.state.Staleness.Mean = math.NaN()
	c.plane.state.Bounds = []protocol.Bound{{Name: "rollouts_bytes", Held: 5, Max: 8, Binding: true, Refused: 2}}
	c.plane.state.Cells = []protocol.Cell{{Name: "b", SilentS: 3, Bounds: []protocol.Bound{{Name: "rollouts_bytes", Held: 1, Max: 8}}}}
	auth := []string{"Authorization", "Bearer " + secrets["viewer"]}
	c.do("GET", "/no/such/path/of/many", "", auth...)
	c.do("GET", "/api/v1/status", "", auth...)
	a := c.do("GET", "/metrics", "", auth...)
	for !strings.Contains(a.body, `path="/api/v1/status"`) { // a request is counted once its reply is out
		a = c.do("GET", "/metrics", "", auth...)
	}
	for _, want := range []string{
		`headway_info{policy="bounded",run="reverse",version="1.2.3"} 1`,
		`headway_scoring_calls_total{channel="teacher",result="answered",server="big"} 8`, `headway_scoring_calls_total{channel="teacher",result="failed",server="big"} 1`, `headway_scoring_seconds_total{channel="teacher",server="big"} 2.5`,
		`headway_scoring_running{channel="teacher",server="big"} 2`, `headway_scoring_waiting{channel="teacher"} 3`, `headway_scoring_waited_seconds_total{channel="teacher"} 1.5`, `headway_rollout_failures_total{kind="infra",reason="scorer"} 4`,
		`headway_rollouts{state="in_flight"} 4`, `headway_rollouts_ended_total{end="trained"} 6`, `headway_held_out{of="reward"} 0.75`, `headway_held_out{of="version"} 15`, `headway_rollout_failures_total{kind="infra",reason="timeout"} 2`, `headway_rollout_failures_total{kind="data",reason="data"} 1`, `headway_policy_version 17`,
		`headway_stalled{code="no_trainer"} 1`, `headway_stalled{code="hold"} 0`, `headway_stalled_seconds 61`, `headway_state{state="running"} 1`,
		`headway_engine_version{engine="e0",stage="0"} 17`, `headway_engine_version{engine="e1",stage="1"} 17`, `headway_engine_state{engine="e1",state="lost"} 1`,
		`headway_http_requests_total{code="404",path="other"} 1`, `headway_http_requests_total{code="200",path="/api/v1/status"} 1`,
		`headway_bound_held{bound="rollouts_bytes"} 5`, `headway_bound_max{bound="rollouts_bytes"} 8`, `headway_bound_binding{bound="rollouts_bytes"} 1`, `headway_bound_refused_total{bound="rollouts_bytes"} 2`,
		`headway_cell_silent_seconds{cell="b"} 3`, `headway_limit_share{bound="rollouts_bytes"} 0.625`,
		`headway_staleness_versions{statistic="mean"} 0`, `headway_ledger_balanced 1`,
		`headway_control_state{state="correcting"} 1`, `headway_control_state{state="keeping"} 0`, `headway_control_target{of="mean"} 2`, `headway_control_target{of="share"} 0.95`,
		`headway_control_measured{of="mean"} 2.5`, `headway_control_measured{of="share"} -1`, `headway_control_steps_total 40`, `headway_control_held_steps_total 30`,
		`headway_control_held_batches_total 20`, `headway_control_moves_total 3`, `headway_control_setting{bound="value",setting="hold"} 0.2`, `headway_control_setting{bound="most",setting="hold"} 0.3`,
		`headway_sender_state{state="serving"} 1`, `headway_sender_state{state="lost"} 0`, `headway_sender_silent_seconds 4`, `headway_sender_version{of="held"} 16`, `headway_sender_version{of="sent"} 14`,
		`headway_sender_engines{state="standing"} 2`, `headway_sender_engines{state="joining"} 1`, `headway_sender_engines{state="late"} 3`, `headway_sender_engines{state="waiting"} 1`,
		`headway_channel_rows_total{channel="routed_experts",state="present"} 90`, `headway_channel_rows_total{channel="routed_experts",state="absent"} 10`, `headway_channel_rows_total{channel="routed_experts",state="lost"} 3`,
		`headway_channel_answers_total{channel="routed_experts",end="kept",engine="e0"} 40`, `headway_channel_answers_total{channel="routed_experts",end="zeros",engine="e0"} 2`,
		`headway_sender_sends_total{end="sent"} 7`, `headway_sender_sends_total{end="failed"} 2`,
		`headway_episodes_total{end="failed"} 2`, `headway_episode_failures_total{class="lost"} 2`, `headway_episode_limits_total{class="timeout"} 3`,
		`headway_episode_seconds_total{part="tool"} 20`, `headway_episode_seconds{part="whole",statistic="p99"} 5`, `headway_verifier_seconds{part="verdict",statistic="p50"} 0.5`,
	} {
		if !strings.Contains(a.body, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	names := map[string]bool{}
	for _, line := range metricLine.FindAllStringSubmatch(a.body, -1) {
		names[line[1]] = true
	}
	for name := range names {
		if ours := strings.HasPrefix(name, "headway_"); !ours && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") && !verls(name) {
			t.Errorf("%s has no prefix", name)
		}
	}
	for _, f := range figures {
		if !names[f.name] {
			t.Errorf("%s is described and not there", f.name)
		}
	}
	if strings.Contains(a.body, "no/such/path") {
		t.Error("an address of a client's choice is a label")
	}
}

// verls reports whether a name is one of verl's.
func verls(name string) bool {
	return name == "trainer_idle_ratio" || slices.ContainsFunc(verlFigures, func(f figure) bool { return f.name == name })
}

// The documentation lists every metric, with the words of its help, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/prometheus.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		label := ""
		if len(f.labels) > 0 {
			label = "{" + strings.Join(f.labels, ",") + "}"
		}
		if line := "| `" + f.name + label + "` | " + f.help + " |"; !strings.Contains(string(text), line) {
			t.Errorf("docs/reference/prometheus.md lacks the line\n%s", line)
		}
	}
	known := map[string]bool{"headway_info": true, "headway_sync_phase_seconds": true, "headway_http_requests_total": true, "headway_http_request_duration_seconds": true, "headway_http_connections_refused_total": true}
	for _, f := range figures {
		known[f.name] = true
	}
	for _, found := range regexp.MustCompile("(?m)^\\| `(headway_[a-z_]+)").FindAllStringSubmatch(string(text), -1) {
		if !known[found[1]] && !strings.HasPrefix(found[1], "headway_sandbox_") { // which are the pool's own
			t.Errorf("docs/reference/prometheus.md lists %s, which is not there", found[1])
		}
	}
}

func TestStatus(t *testing.T) {
	c := start(t, Options{}, nil)
	a := c.do("GET", "/api/v1/status", "")
	var status protocol.Status
	if err := json.Unmarshal([]byte(a.body), &status); err != nil || status.Run != "reverse" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v %s %v", err, a.body, a.header)
	}
}
