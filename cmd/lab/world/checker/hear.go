package checker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// call is an exchange with a plane: who asked it, which line tells it, and from when to when it went.
type call struct {
	line      int
	host, to  string
	began, at int64
	status    int
	// whole says that the answer came in full.
	whole bool
}

// claim is a rollout that a worker was given.
type claim struct {
	call
	id          attemptID
	name        string
	worker      string
	key, secret string
	prompt      uint64
	deadlineS   float64
	evaluation  bool
}

// finish is an end of a rollout, as its worker said it.
type finish struct {
	call
	id      attemptID
	worker  string
	reward  *float32
	failed  string
	reason  string
	counted bool // as the answer says, if one came
	told    bool
}

// batch is a lease that was answered.
type batch struct {
	call
	rank, world int
	// after and afterAttempt are of the lease whose share the rank has done.
	after, afterAttempt int64
	body                *body
	// references name the bodies of its groups, where it was leased by reference; body is made of them.
	references []reference
}

// publish is a version that a trainer sent.
type publish struct {
	call
	manifest publishWord
	files    map[string][]byte // nil where none came along
	version  int64             // of the answer
	existing bool
}

// step is an ack or a nack of a lease.
type step struct {
	call
	lease, attempt int64
	version        int64 // of the answer to an ack
	failed         bool
}

// connect is what a trainer was told when it connected, holding a version.
type connect struct {
	call
	held int64
	word connectWord
}

type connectWord struct {
	Action  string `json:"action"`
	Version int64  `json:"version"`
	Next    int64  `json:"next"`
	Load    int64  `json:"load"`
}

// poll is a status.
type poll struct {
	call
	word statusWord
}

// versionSaid is a manifest that a plane told.
type versionSaid struct {
	call
	word manifestWord
}

// fileSaid is a file of a version that a plane sent.
type fileSaid struct {
	call
	version int64 // -1 for the latest
	name    string
	from    int // the first byte
	bytes   []byte
}

// named is a call that names a claim or a lease, beside those above.
type named struct {
	call
	id       attemptID // of a claim
	lease    int64     // of a lease
	attempt  int64
	rank     int
	kind     string // sample, touch, finish, completion, renew, ack, nack, publish
	wanted   bool   // by the answer to a touch, as is unwanted
	unwanted bool
	outcome  string
	message  string
}

// testimony is all that the exchanges say.
type testimony struct {
	// bodies are those of groups, by their hash; came says which came, announced which were announced. leased are the hashes
	// by which groups were leased.
	bodies          map[string][]byte
	came, announced []groupSaid
	leased          map[int64]string

	c         *check
	claims    []claim
	finishes  []finish
	batches   []batch
	publishes []publish
	acks      []step
	nacks     []step
	polls     []poll
	// words are those of receivers.
	words    []report
	connects []connect
	// ranks is the number of those that trainers have.
	ranks int
	// connecting are all calls of trainers that connect, and asks those for a batch, whatever came of them.
	connecting, asks []call
	// ended are the calls that were told that the run has ended, unkept those for claims that could not be kept.
	ended     []call
	unkept    []call
	manifests []versionSaid
	files     []fileSaid
	named     []named
	// prompts are those that completions were asked with.
	prompts map[string]bool
	keys    map[string]attemptID
	known   map[string]bool
	// unanswered is when a host first asked for the claims that it has not been answered: a repeated call gets the
	// answer of the first.
	unanswered map[string]int64
	// rows are those of side channels.
	rows []rows
	// completions are those of agents, by attempt.
	completions map[attemptID][]completion
	// sampled are the answers of sample, by attempt and turn.
	sampled map[turn]*sampled
}

// turn is one of an attempt.
type turn struct {
	attemptID
	turn int
}

// sampled is what a plane said that an engine sampled.
type sampled struct {
	line     int
	Tokens   []int32   `json:"tokens"`
	Logprobs []float32 `json:"logprobs"`
	Versions []int32   `json:"versions"`
	Finish   string    `json:"finish"`
}

type publishWord struct {
	Trainer      string         `json:"trainer"`
	Lease        int64          `json:"lease"`
	Attempt      int64          `json:"attempt"`
	Version      int64          `json:"version"`
	RestoredFrom *int64         `json:"restored_from"`
	Kind         string         `json:"kind"`
	Files        []manifestFile `json:"files"`
	Directory    string         `json:"directory"`
}

type manifestFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Hash string `json:"hash"`
}

type manifestWord struct {
	Version int64          `json:"version"`
	Kind    string         `json:"kind"`
	Lease   int64          `json:"lease"`
	Epoch   uint64         `json:"epoch"`
	Files   []manifestFile `json:"files"`
	Hash    string         `json:"hash"`
}

type statusWord struct {
	State   string `json:"state"`
	Version int64  `json:"version"`
	Ledger  struct {
		sums
		Balanced bool `json:"balanced"`
	} `json:"ledger"`
	Trainer struct {
		Lease int64 `json:"lease"`
	} `json:"trainer"`
	Engines []engineWord `json:"engines"`
	Writer  struct {
		Name  string `json:"name"`
		Epoch uint64 `json:"epoch"`
	} `json:"writer"`
}

// hear reads the exchanges.
func hear(c *check, lines []history.Line) *testimony {
	t := &testimony{c: c, ranks: 1, prompts: map[string]bool{}, keys: map[string]attemptID{}, known: map[string]bool{}, unanswered: map[string]int64{}, completions: map[attemptID][]completion{}, sampled: map[turn]*sampled{}}
	for i := range lines {
		x := lines[i].Exchange
		if lines[i].Kind != "exchange" || x == nil {
			continue
		}
		at := call{line: i, host: lines[i].Host, to: x.To, began: x.BeganNS, at: lines[i].AtNS, status: x.Status, whole: x.Status != 0 && x.Error == ""}
		if x.Status == 500 {
			c.fail(RuleInternal, i, "%s asked %s %s of %s, and met a defect: %.300s", at.host, x.Method, x.Path, x.To, x.Response)
		}
		if x.Status == 205 {
			t.ended = append(t.ended, at)
		}
		path, _, _ := strings.Cut(x.Path, "?")
		parts := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/")
		switch parts[0] {
		case "rollouts":
			t.rollouts(at, x, parts[1:])
		case "batches":
			t.leases(at, x, parts[1:])
		case "groups":
			t.group(at, x, parts[1:])
		case "weights":
			t.weights(at, x, parts[1:])
		case "trainers":
			t.connect(at, x)
		case "status":
			t.status(at, x)
		case "receivers":
			t.receiver(at, x)
		default:
			if strings.HasPrefix(path, "/v1/") {
				t.completion(at, x)
			}
		}
	}
	t.gather()
	return t
}

// read decodes an answer. One that came in full and cannot be read is a defect.
func (t *testimony) read(at call, text []byte, into any) bool {
	if !at.whole || at.status != 200 {
		return false
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.c.fail(RuleInternal, at.line, "an answer of %s to %s cannot be read: %v: %.300q", at.to, at.host, err, text)
		return false
	}
	return true
}

func (t *testimony) connect(at call, x *history.Exchange) {
	var request struct {
		Version int64 `json:"version"`
		World   int   `json:"world_size"`
	}
	_ = json.Unmarshal(x.Request, &request) // the trainer's own
	t.ranks = max(t.ranks, request.World)
	t.connecting = append(t.connecting, at)
	k := connect{call: at, held: request.Version}
	if t.read(at, x.Response, &k.word) {
		t.connects = append(t.connects, k)
	}
}

func (t *testimony) status(at call, x *history.Exchange) {
	p := poll{call: at}
	if t.read(at, x.Response, &p.word) {
		t.polls = append(t.polls, p)
	}
}

// parseID reads a claim's name: g1-s0-a1. That of an evaluation begins with e.
func parseID(text string) (id attemptID, ok bool) {
	g, rest, ok1 := strings.Cut(text, "-s")
	s, a, ok2 := strings.Cut(rest, "-a")
	if !ok1 || !ok2 || len(g) < 2 || g[0] != 'g' {
		return id, false
	}
	group, err1 := strconv.ParseInt(g[1:], 10, 64)
	sample, err2 := strconv.ParseInt(s, 10, 32)
	try, err3 := strconv.ParseInt(a, 10, 32)
	return attemptID{group, int32(sample), int32(try)}, err1 == nil && err2 == nil && err3 == nil
}

func (t *testimony) rollouts(at call, x *history.Exchange, parts []string) {
	if len(parts) == 1 && parts[0] == "claim" {
		t.claim(at, x)
		return
	}
	if len(parts) != 2 {
		return
	}
	id, ok := parseID(parts[0])
	if !ok {
		return
	}
	switch parts[1] {
	case "finish":
		t.finish(at, x, id)
	case "sample":
		t.sample(at, x, id)
	}
	n := named{id: id, kind: parts[1]}
	if n.kind == "touch" {
		var reply struct {
			Wanted bool `json:"wanted"`
		}
		answered := t.read(at, x.Response, &reply)
		n.wanted, n.unwanted = answered && reply.Wanted, answered && !reply.Wanted
	}
	t.names(at, x, n)
}

// names keeps a call that names a claim or a lease, with the refusal that it met.
func (t *testimony) names(at call, x *history.Exchange, n named) {
	n.call = at
	if at.whole && at.status >= 400 {
		var word struct {
			Error struct {
				Message string `json:"message"`
				Detail  struct {
					Outcome string `json:"outcome"`
				} `json:"detail"`
			} `json:"error"`
		}
		if json.Unmarshal(x.Response, &word) == nil {
			n.outcome, n.message = word.Error.Detail.Outcome, word.Error.Message
		}
	}
	t.named = append(t.named, n)
}

// sample keeps what was sampled. The same turn asked again gets the same answer.
func (t *testimony) sample(at call, x *history.Exchange, id attemptID) {
	var request struct {
		Turn   int     `json:"turn"`
		Prompt []int32 `json:"prompt"`
	}
	if json.Unmarshal(x.Request, &request) != nil {
		return
	}
	t.prompts[promptKey(request.Prompt)] = true
	s := &sampled{line: at.line}
	if !t.read(at, x.Response, s) {
		return
	}
	key := turn{id, request.Turn}
	if was := t.sampled[key]; was == nil {
		t.sampled[key] = s
	} else if !slices.Equal(was.Tokens, s.Tokens) || !slices.Equal(was.Logprobs, s.Logprobs) || !slices.Equal(was.Versions, s.Versions) {
		t.c.fail(RuleToken, at.line, "turn %d of %v was sampled as %v under %v, and as %v under %v at line %d", request.Turn, id, s.Tokens, s.Versions, was.Tokens, was.Versions, was.line)
	}
}

func (t *testimony) claim(at call, x *history.Exchange) {
	var request struct {
		Worker string `json:"worker"`
	}
	_ = json.Unmarshal(x.Request, &request) // a worker's own
	var reply struct {
		Rollouts []struct {
			ID         string  `json:"id"`
			Group      int64   `json:"group"`
			Sample     int32   `json:"sample"`
			Attempt    int32   `json:"attempt"`
			Key        string  `json:"key"`
			Secret     string  `json:"secret"`
			Prompt     uint64  `json:"prompt"`
			Evaluation bool    `json:"evaluation"`
			DeadlineS  float64 `json:"deadline_s"`
		} `json:"rollouts"`
	}
	first, again := t.unanswered[at.host]
	switch {
	case !at.whole && !again:
		t.unanswered[at.host] = at.began
	case at.whole && at.status < 300:
		delete(t.unanswered, at.host)
	}
	if at.status == 503 && bytes.Contains(x.Response, []byte("claims cannot be kept")) {
		t.unkept = append(t.unkept, at)
	}
	if !t.read(at, x.Response, &reply) {
		return
	}
	if again {
		at.began = min(at.began, first)
	}
	for _, r := range reply.Rollouts {
		id := attemptID{r.Group, r.Sample, r.Attempt}
		if said, ok := parseID(r.ID); !r.Evaluation && (!ok || said != id) {
			t.c.fail(RuleClaim, at.line, "the claim %q is of %v", r.ID, id)
		}
		if r.Key != "" {
			t.keys[r.Key] = id
		}
		t.claims = append(t.claims, claim{call: at, id: id, name: r.ID, worker: request.Worker, key: r.Key, secret: r.Secret, prompt: r.Prompt, deadlineS: r.DeadlineS, evaluation: r.Evaluation})
	}
}

func (t *testimony) finish(at call, x *history.Exchange, id attemptID) {
	var request struct {
		Worker string   `json:"worker"`
		Reward *float32 `json:"reward"`
		Failed string   `json:"failed"`
		Reason string   `json:"reason"`
	}
	if err := json.Unmarshal(x.Request, &request); err != nil {
		return
	}
	f := finish{call: at, id: id, worker: request.Worker, reward: request.Reward, failed: request.Failed, reason: request.Reason}
	var reply struct {
		Counted bool `json:"counted"`
	}
	if t.read(at, x.Response, &reply) {
		f.told, f.counted = true, reply.Counted
	}
	t.finishes = append(t.finishes, f)
}

func (t *testimony) leases(at call, x *history.Exchange, parts []string) {
	if len(parts) == 1 && parts[0] == "lease" {
		t.lease(at, x)
		return
	}
	id, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return
	}
	if len(parts) == 3 && parts[1] == "channels" {
		t.channel(at, x, id, parts[2])
	}
	if len(parts) != 2 {
		return
	}
	var request struct {
		Attempt int64 `json:"attempt"`
		Rank    int   `json:"rank"`
		Failed  bool  `json:"failed"`
	}
	_ = json.Unmarshal(x.Request, &request) // the trainer's own
	s := step{call: at, lease: id, attempt: request.Attempt, failed: request.Failed}
	switch parts[1] {
	case "ack":
		var reply struct {
			Version int64 `json:"version"`
		}
		if t.read(at, x.Response, &reply) {
			s.version = reply.Version
			t.acks = append(t.acks, s)
		}
	case "nack":
		t.nacks = append(t.nacks, s)
	}
	t.names(at, x, named{lease: id, attempt: request.Attempt, rank: request.Rank, kind: parts[1]})
}

func (t *testimony) lease(at call, x *history.Exchange) {
	var request struct {
		Rank  int    `json:"rank"`
		World int    `json:"world_size"`
		Kind  string `json:"kind"`
		Form  string `json:"form"`

		After        int64 `json:"after"`
		AfterAttempt int64 `json:"after_attempt"`
	}
	_ = json.Unmarshal(x.Request, &request) // the trainer's own
	t.asks = append(t.asks, at)
	if !at.whole || at.status != 200 || request.Kind == "validation" {
		return
	}
	b, references, err := readLease(x.Response, request.Form)
	if err != nil {
		t.c.fail(RuleBatch, at.line, "the body of a lease cannot be read: %v", err)
		return
	}
	t.batches = append(t.batches, batch{call: at, rank: request.Rank, world: request.World, after: request.After, afterAttempt: request.AfterAttempt, body: b, references: references})
	t.named = append(t.named, named{call: at, lease: b.lease.Lease, attempt: b.lease.Attempt, rank: request.Rank, kind: "lease"})
}

func (t *testimony) weights(at call, x *history.Exchange, parts []string) {
	switch {
	case len(parts) == 0 && x.Method == "POST":
		t.publish(at, x)
	case len(parts) == 1 && x.Method == "GET":
		if at.whole && at.status == 200 && t.known[string(x.Response)] {
			return // the same was told before
		}
		v := versionSaid{call: at}
		word := struct {
			Manifest *manifestWord `json:"manifest"`
		}{&v.word}
		if t.read(at, x.Response, &word) {
			t.known[string(x.Response)] = true
			if asked, err := strconv.ParseInt(parts[0], 10, 64); err == nil && asked != v.word.Version {
				t.c.fail(RuleVersion, at.line, "version %d was asked for, and the manifest is of version %d", asked, v.word.Version)
			}
			if parts[0] == "latest" && len(v.word.Files) == 0 {
				t.c.fail(RuleVersion, at.line, "version %d is the latest for %s, and has no weights", v.word.Version, at.host)
			}
			t.manifests = append(t.manifests, v)
		}
	case len(parts) == 3 && parts[1] == "files" && x.Method == "GET" && (at.whole && at.status == 200 || at.status == 206):
		version, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil {
			version = -1
		}
		f := fileSaid{call: at, version: version, name: parts[2], bytes: x.Response}
		if at.status == 206 {
			if _, err := fmt.Sscanf(x.Range, "bytes=%d-", &f.from); err != nil {
				t.c.fail(RuleVersion, at.line, "%s asked for the part %q of %s, and was answered with one", at.host, x.Range, x.Path)
				return
			}
		}
		t.files = append(t.files, f)
	}
}

func (t *testimony) publish(at call, x *history.Exchange) {
	p := publish{call: at}
	text := x.Request
	if bytes.HasPrefix(text, []byte("--")) {
		boundary, _, _ := strings.Cut(string(text[2:min(len(text), 100)]), "\r\n")
		form := multipart.NewReader(bytes.NewReader(text), boundary)
		p.files = map[string][]byte{}
		for {
			part, err := form.NextPart()
			if err != nil {
				break
			}
			content, err := io.ReadAll(part)
			if err != nil {
				break
			}
			if part.FormName() == "manifest" {
				text = content
			} else {
				p.files[part.FormName()] = content
			}
		}
	}
	if json.Unmarshal(text, &p.manifest) != nil {
		return
	}
	var reply struct {
		Version  int64 `json:"version"`
		Existing bool  `json:"existing"`
	}
	if t.read(at, x.Response, &reply) {
		p.version, p.existing = reply.Version, reply.Existing
	}
	t.publishes = append(t.publishes, p)
	t.names(at, x, named{lease: p.manifest.Lease, attempt: p.manifest.Attempt, kind: "publish"})
}

func promptKey(tokens []int32) string {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = append(b, byte(t), byte(t>>8), byte(t>>16), byte(t>>24))
	}
	return string(b)
}
