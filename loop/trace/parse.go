package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/headway-rl/headway/loop"
)

// parseLine reads a line without its checksum. It reads what an Encoder writes and
// no other JSON: members in any order, without spaces and escapes. A live run's
// log has a few lines a rollout, so that a general decoder would take longer for
// a replay than the loop takes for its decisions.
func parseLine(line []byte) (Record, error) {
	p := parser{rest: line}
	if !p.skip("{") {
		return Record{}, errors.New("not a trace line: it does not begin with {")
	}
	var w wire
	for first := true; len(p.rest) > 0; first = false {
		if !first && !p.skip(",") {
			return Record{}, fmt.Errorf("not a trace line: expected a comma at %.20q", p.rest)
		}
		if err := p.member(&w); err != nil {
			return Record{}, err
		}
	}
	return w.record()
}

// wire is a line's members. Those it lacks are zero.
type wire struct {
	numbered                      bool
	n, t                          int64
	event, action, note           []byte
	data                          []byte
	engine, slot, sample, attempt int64
	tokens, count                 int64
	made                          []loop.VersionTokens
	group, lease                  int64
	version, start, ready         int64
	prompt, level                 int64
	reward, drift                 float64
	reason, end, verdict          []byte
	setting, control              []byte
	value                         float64
	generateNS, environmentNS     int64
	versionTokens                 int64
	spans, stateLag               int64
	resumed                       bool
	cell                          []byte
	incarnation, sequence         int64
}

// parser reads the members of a line.
type parser struct{ rest []byte }

func (p *parser) skip(text string) bool {
	if len(p.rest) < len(text) || string(p.rest[:len(text)]) != text {
		return false
	}
	p.rest = p.rest[len(text):]
	return true
}

// text reads a quoted word.
func (p *parser) text() ([]byte, error) {
	if !p.skip(`"`) {
		return nil, fmt.Errorf("expected a quoted word at %.20q", p.rest)
	}
	end := bytes.IndexByte(p.rest, '"')
	if end < 0 || bytes.IndexByte(p.rest[:end], '\\') >= 0 {
		return nil, fmt.Errorf("unreadable word at %.20q", p.rest)
	}
	word := p.rest[:end]
	p.rest = p.rest[end+1:]
	return word, nil
}

// number reads a whole number.
func (p *parser) number(into *int64) error {
	rest, negative := p.rest, false
	if len(rest) > 0 && rest[0] == '-' {
		rest, negative = rest[1:], true
	}
	v, digits := uint64(0), 0
	for digits < len(rest) && rest[digits]-'0' <= 9 && digits < 20 {
		v = v*10 + uint64(rest[digits]-'0')
		digits++
	}
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	if digits == 0 || digits > 19 || v > limit {
		return fmt.Errorf("expected a whole number of 64 bits at %.20q", p.rest)
	}
	p.rest = rest[digits:]
	*into = int64(v)
	if negative {
		*into = -int64(v)
	}
	return nil
}

// real reads a number of 32 bits, or what stands for none.
func (p *parser) real(into *float64) error { return p.float(into, 32) }

func (p *parser) float(into *float64, bits int) error {
	if p.skip(noNumber) {
		*into = math.NaN()
		return nil
	}
	end := bytes.IndexByte(p.rest, ',')
	if end < 0 {
		end = len(p.rest)
	}
	v, err := strconv.ParseFloat(string(p.rest[:end]), bits)
	if err != nil {
		return fmt.Errorf("expected a number at %.20q", p.rest)
	}
	*into = v
	p.rest = p.rest[end:]
	return nil
}

// pairs reads a list of versions, each with its tokens.
func (p *parser) pairs(into *[]loop.VersionTokens) error {
	if !p.skip("[") {
		return fmt.Errorf("expected a list at %.20q", p.rest)
	}
	for first := true; !p.skip("]"); first = false {
		var v, n int64
		if !first && !p.skip(",") {
			return fmt.Errorf("expected a comma or the list's end at %.20q", p.rest)
		}
		if err := p.number(&v); err != nil {
			return err
		}
		if !p.skip(",") {
			return fmt.Errorf("expected a version's tokens at %.20q", p.rest)
		}
		if err := p.number(&n); err != nil {
			return err
		}
		*into = append(*into, loop.VersionTokens{Version: loop.Version(v), Tokens: n})
	}
	return nil
}

func (p *parser) yes(into *bool) error {
	if !p.skip("true") {
		return fmt.Errorf("expected true at %.20q", p.rest)
	}
	*into = true
	return nil
}

// member reads one "key":value.
func (p *parser) member(w *wire) error {
	key, err := p.text()
	if err != nil {
		return err
	}
	if !p.skip(":") {
		return fmt.Errorf("expected a colon at %.20q", p.rest)
	}
	switch string(key) {
	case "n":
		w.numbered = true
		return p.number(&w.n)
	case "t":
		return p.number(&w.t)
	case "engine":
		return p.number(&w.engine)
	case "slot":
		return p.number(&w.slot)
	case "g":
		return p.number(&w.group)
	case "s":
		return p.number(&w.sample)
	case "attempt":
		return p.number(&w.attempt)
	case "tokens":
		return p.number(&w.tokens)
	case "made":
		return p.pairs(&w.made)
	case "count":
		return p.number(&w.count)
	case "lease":
		return p.number(&w.lease)
	case "v":
		return p.number(&w.version)
	case "start_v":
		return p.number(&w.start)
	case "ready_v":
		return p.number(&w.ready)
	case "gen_ns":
		return p.number(&w.generateNS)
	case "env_ns":
		return p.number(&w.environmentNS)
	case "v_tokens":
		return p.number(&w.versionTokens)
	case "spans":
		return p.number(&w.spans)
	case "state_lag":
		return p.number(&w.stateLag)
	case "inc":
		return p.number(&w.incarnation)
	case "q":
		return p.number(&w.sequence)
	case "resumed":
		return p.yes(&w.resumed)
	case "prompt":
		return p.number(&w.prompt)
	case "level":
		return p.number(&w.level)
	case "reward":
		return p.real(&w.reward)
	case "drift":
		return p.real(&w.drift)
	case "value":
		return p.float(&w.value, 64)
	case "data":
		w.data, p.rest = p.rest, nil // the last member, always
		return nil
	}
	return p.word(string(key), w)
}

// word reads a member whose value is a word.
func (p *parser) word(key string, w *wire) (err error) {
	switch key {
	case "e":
		w.event, err = p.text()
	case "a":
		w.action, err = p.text()
	case "note":
		w.note, err = p.text()
	case "reason":
		w.reason, err = p.text()
	case "end":
		w.end, err = p.text()
	case "verdict":
		w.verdict, err = p.text()
	case "setting":
		w.setting, err = p.text()
	case "control":
		w.control, err = p.text()
	case "cell":
		w.cell, err = p.text()
	default:
		return fmt.Errorf("unknown member %q", key)
	}
	return err
}

// record checks the members and makes what they say.
func (w *wire) record() (Record, error) {
	if !w.numbered {
		return Record{}, errors.New(`no sequence number "n"`)
	}
	for _, v := range [...]int64{w.engine, w.slot, w.sample, w.attempt, w.tokens, w.count, w.level, w.spans} {
		if v < math.MinInt32 || v > math.MaxInt32 {
			return Record{}, fmt.Errorf("%d does not fit in 32 bits", v)
		}
	}
	r := Record{Seq: w.n}
	switch {
	case len(w.event) > 0:
		err := w.asEvent(&r)
		return r, err
	case len(w.action) > 0:
		err := w.asAction(&r)
		return r, err
	case len(w.note) > 0:
		if !json.Valid(w.data) {
			return r, fmt.Errorf("the data of note %s is no JSON", w.note)
		}
		r.Note, r.Data = string(w.note), bytes.Clone(w.data)
		return r, nil
	}
	return r, errors.New("neither an event, an action nor a note")
}

func (w *wire) asEvent(r *Record) error {
	var err error
	kind, reason, verdict := eventKinds.parse(w.event, &err), reasons.parse(w.reason, &err), verdicts.parse(w.verdict, &err)
	var setting loop.Setting
	if len(w.setting) > 0 {
		setting = settings.parse(w.setting, &err)
	}
	if err != nil {
		return err
	}
	r.Event = &Event{GenerateNS: w.generateNS, EnvironmentNS: w.environmentNS, VersionTokens: w.versionTokens,
		Spans: int(w.spans), Resumed: w.resumed, StateLag: w.stateLag, Origin: Origin{string(w.cell), w.incarnation, w.sequence}, Event: loop.Event{
			Time: w.t, Kind: kind, Setting: setting, Mark: verdict, Reason: reason, Drift: float32(w.drift), Engine: int32(w.engine), Slot: int32(w.slot), Sample: int32(w.sample), Attempt: int32(w.attempt),
			Tokens: int32(w.tokens), Made: w.made, Reward: float32(w.reward), Group: loop.GroupID(w.group), Lease: loop.LeaseID(w.lease), Version: loop.Version(w.version)}}
	return nil
}

func (w *wire) asAction(r *Record) error {
	var err error
	kind, reason, end := actionKinds.parse(w.action, &err), reasons.parse(w.reason, &err), ends.parse(w.end, &err)
	var setting loop.Setting
	if len(w.setting) > 0 {
		setting = settings.parse(w.setting, &err)
	}
	control := controls.parse(w.control, &err)
	if err != nil {
		return err
	}
	r.Action = &loop.Action{Kind: kind, Setting: setting, Control: control, Value: w.value, End: end, Reason: reason, Prompt: w.prompt, Level: int32(w.level), Engine: int32(w.engine), Slot: int32(w.slot), Sample: int32(w.sample),
		Attempt: int32(w.attempt), Count: int32(w.count), Group: loop.GroupID(w.group), Lease: loop.LeaseID(w.lease),
		Version: loop.Version(w.version), StartVersion: loop.Version(w.start), ReadyVersion: loop.Version(w.ready)}
	return nil
}

// names maps the words of one kind to their values.
type names[K ~uint8] struct {
	known map[string]K
	// strict says of an unknown word what is known.
	strict func(string) (K, error)
}

// parse returns a word's value. An unknown word sets err, unless another did before.
func (n *names[K]) parse(word []byte, err *error) K {
	k, ok := n.known[string(word)]
	if !ok && *err == nil {
		k, *err = n.strict(string(word))
	}
	return k
}

// collect asks for the name of every value until one is unknown.
func collect[K interface {
	~uint8
	String() string
}](first K, strict func(string) (K, error)) *names[K] {
	n := &names[K]{known: map[string]K{}, strict: strict}
	for k := first; ; k++ {
		if again, err := strict(k.String()); err != nil || again != k {
			return n
		}
		n.known[k.String()] = k
	}
}

var (
	eventKinds  = collect(loop.RunStarted, loop.ParseEventKind)
	actionKinds = collect(loop.StartRollout, loop.ParseActionKind)
	verdicts    = collect(loop.MarkNone, loop.ParseMark)
	reasons     = collect(loop.ReasonNone, loop.ParseReason)
	ends        = collect(loop.EndNone, loop.ParseEnd)
	settings    = collect(loop.SettingSlots, loop.ParseSetting)
	controls    = collect(loop.ControlOff, loop.ParseControlState)
)
