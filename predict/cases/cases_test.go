package cases

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
)

// columns of the tables that tests make.
var columns = []string{"id", "family", "grade", "model", "model_shape", "gpu", "gpus", "train_gpus", "rollout_gpus", "schedule", "rollout_tp", "train_tp", "train_pp", "train_ep",
	"prompts", "samples", "sequences", "optimizer_steps", "mean_prompt_tokens", "mean_response_tokens", "cap_tokens", "cap_of", "rollout_dtype", "train_dtype",
	"recompute", "old_logprob_pass", "reference_pass", "staleness_rule", "sync", "concurrency", "m_step_s", "m_train_s", "note"}

// row of a table: fields by column.
type fields map[string]string

// example is a run of an 8 B model on 16 GPUs.
func example(id string, change fields) fields {
	f := fields{"id": id, "family": "own", "grade": "A", "model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": "16", "train_gpus": "16", "rollout_gpus": "16",
		"schedule": "synchronous, colocated", "rollout_tp": "1", "prompts": "64", "samples": "16", "sequences": "1024", "optimizer_steps": "2",
		"mean_prompt_tokens": "150", "mean_response_tokens": "1000", "cap_tokens": "4096", "cap_of": "response", "old_logprob_pass": "yes"}
	for k, v := range change {
		f[k] = v
	}
	return f
}

// written is a table as a file.
func written(rows ...fields) string {
	var out bytes.Buffer
	out.WriteString("# a comment, with \"quotes\n")
	w := csv.NewWriter(&out)
	_ = w.Write(columns)
	for _, r := range rows {
		record := make([]string, len(columns))
		for i, c := range columns {
			record[i] = r[c]
		}
		_ = w.Write(record)
	}
	w.Flush()
	return out.String()
}

func read(t *testing.T, rows ...fields) []Row {
	t.Helper()
	out, err := Read(strings.NewReader(written(rows...)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func answers(t *testing.T, rows []Row, f Fitted, o Options) []Answer {
	t.Helper()
	out, err := Table(t.Context(), rows, f, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A table that cannot be read is refused with the line and the column.
func TestReadRefuses(t *testing.T) {
	good := written(example("a", nil))
	for _, test := range []struct{ name, table, want string }{
		{"empty", "", "the table is empty"},
		{"comments alone", "# nothing\n", "the table is empty"},
		{"no column", "id,family\na,b\n", "has no column model, gpu, schedule, train_gpus, rollout_gpus, sequences, mean_prompt_tokens, mean_response_tokens, cap_tokens"},
		{"no row", strings.Join(columns, ",") + "\n", "no row"},
		{"fields", good + "x,y\n", "line 4: 2 fields"},
		{"twice", written(example("a", nil), example("a", nil)), "line 4: the id a is that of line 3"},
		{"nameless", written(example("", nil)), "column id"},
		{"columns twice", "id,id\n", "the column id stands twice"},
	} {
		_, err := Read(strings.NewReader(test.table))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// A table reads alike as a spreadsheet writes it: marks, line ends, separators, quotes, capitals, empty lines and fields.
func TestReadOfSpreadsheets(t *testing.T) {
	const header, rest = "id,family,model,gpu,schedule,train_gpus,rollout_gpus,sequences,mean_prompt_tokens,mean_response_tokens,cap_tokens", "one,own,qwen3-8b,h100,asynchronous,8,8,512,200,1000,4096"
	const plain = header + "\n" + rest + "\n"
	for name, text := range map[string]string{
		"plain": plain, "Windows": strings.ReplaceAll(plain, "\n", "\r\n"), "old Macs": strings.ReplaceAll(plain, "\n", "\r"), "mark": "\ufeff" + plain, "mark and comment": "\ufeff# a \"comment\n" + plain,
		"mark and quotes": "\ufeff\"id\"" + plain[2:], "semicolons": strings.ReplaceAll(plain, ",", ";"), "tabs": "# a, comment\n" + strings.ReplaceAll(plain, ",", "\t"),
		"capitals": strings.ToUpper(header) + "\n" + rest, "empty fields": header + ",,\n" + rest + ",,,\n", "empty lines": "\n" + header + "\n\n,,,,,,,,,,\n" + rest + "\n\n",
	} {
		rows, err := Read(strings.NewReader(text))
		if err != nil || len(rows) != 1 || rows[0].ID != "one" || rows[0].CapTokens != 4096 {
			t.Errorf("%s: %+v, %v", name, rows, err)
		}
	}
	for want, text := range map[string]string{
		"no UTF-8 text": "i\xff\xfe", "a field with a separator in it wants quotes": header + "\n" + rest + ",1\n",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A figure that cannot be read leaves its row alone without an answer, and says where it stands and what to write.
func TestUnreadFigures(t *testing.T) {
	for _, test := range []struct{ column, text, want string }{
		{"sequences", "many", `line 3, column sequences: "many": write a number from 0 to 100000 without its unit, or nothing where it is not published`},
		{"sequences", "200000", `column sequences: "200000": write a number from 0 to 100000`},
		{"cap_tokens", "2000000", `column cap_tokens: "2000000": write a number from 0 to 1048576`},
		{"cap_tokens", "32k", `column cap_tokens: "32k": write a number`},
		{"gpus", "1.5", `column gpus: "1.5": write a whole number`},
		{"mean_response_tokens", "-1000", `column mean_response_tokens: "-1000"`},
		{"mean_response_tokens", "inf", `column mean_response_tokens: "inf"`},
		{"schedule", "serving only", "rollout_replicas"}, // read by another room
	} {
		got := answers(t, read(t, example("a", fields{test.column: test.text, "m_step_s": "70"}), example("b", nil)), Shipped(), Options{})
		if got[0].Step != nil || !strings.Contains(got[0].Reason, test.want) || got[1].Step == nil {
			t.Errorf("%s %q: %q, want %q; the other row: %+v", test.column, test.text, got[0].Reason, test.want, got[1].Step)
		}
	}
	many := answers(t, read(t, example("a", fields{"sequences": "", "prompts": "100000", "samples": "100000"})), Shipped(), Options{})[0]
	if !strings.Contains(many.Reason, "100000 prompts of 100000 samples are more than 100000 sequences") {
		t.Errorf("%q", many.Reason)
	}
	two := answers(t, read(t, example("a", fields{"train_tp": "x", "gpus": "y"})), Shipped(), Options{})[0]
	if !strings.Contains(two.Reason, "column gpus") || strings.Index(two.Reason, "column gpus") > strings.Index(two.Reason, "; line 3, column train_tp") {
		t.Errorf("%q: want both, in order", two.Reason)
	}
	wrong := answers(t, read(t, example("a", fields{"m_step_s": "70 s"})), Shipped(), Options{})[0]
	if wrong.Measured != nil || wrong.Step == nil || fmt.Sprint(wrong.Assumed) != `[no m_step_s: "70 s" is no number]` {
		t.Errorf("%+v", wrong)
	}
}

// Figures are read as tables write them, and words for one that is not published as none.
func TestNumber(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "n/a": 0, "N/A": 0, "-": 0, "–": 0, "?": 0, "NaN": 0, "unknown": 0, "not published": 0, "0": 0, "1024": 1024, "1024.0": 1024, "1e3": 1000,
		"1,024": 1024, "1 024": 1024, "1\u202f024\u202f000": 1024000, "1'024": 1024, "12,345.5": 12345.5, "~400": 400, "≈ 400": 400, "+5": 5} {
		if v, err := number(text, 1e9); err != nil || v != want {
			t.Errorf("%q: %g, %v, want %g", text, v, err, want)
		}
	}
	for _, text := range []string{"1,5", "0,512", "1,02", "1,024,5", "4096 tokens", "-3", "inf", "1e400", "0x", "eight"} {
		if v, err := number(text, 1e9); err == nil {
			t.Errorf("%q is read as %g", text, v)
		}
	}
}

// The words of a row become rules.
func TestRules(t *testing.T) {
	for _, test := range []struct {
		change fields
		check  func(rules) bool
	}{
		{nil, func(r rules) bool { return r.shared && !r.async && r.kind == kindStep && r.syncEvery == 1 }},
		{fields{"schedule": "asynchronous, separate GPUs, at most 8 rollout batch(es) old", "staleness_rule": "max_trajectory_age_steps 8; in_flight_weight_updates true"},
			func(r rules) bool { return r.async && !r.shared && r.ahead == 8 && r.inFlight }},
		{fields{"schedule": "asynchronous, separate GPUs", "staleness_rule": "groups older than 1 optimizer updates are discarded", "sync": "NCCL, every 2 update(s), generation paused", "concurrency": "64 groups of 4 at once"},
			func(r rules) bool { return r.ahead == 1 && r.syncEvery == 2 && r.inFlightRollouts == 256 && !r.sharded }},
		{fields{"schedule": "asynchronous, separate GPUs, mini-batches streamed", "optimizer_steps": "4", "staleness_rule": "max_off_policy_threshold 8"},
			func(r rules) bool { return r.pieces == 4 && r.ahead == 2 }},
		{fields{"schedule": "asynchronous, interruptible", "staleness_rule": "eta 4"}, func(r rules) bool { return r.ahead == 4 }},
		{fields{"schedule": "trainer alone, fake data", "train_dtype": "bf16, FSDP2", "note": "LoRA rank 16"}, func(r rules) bool { return r.kind == kindTrain && r.fsdp && r.lora }},
		{fields{"schedule": "weight sync alone", "sync": "NCCL reshard, EP8 to TP8"}, func(r rules) bool { return r.kind == kindSync && r.sharded }},
		{fields{"rollout_dtype": "fp8", "train_dtype": "bf16, fp32 Adam offloaded outside the update"}, func(r rules) bool { return r.rolloutBytes == 1 && r.trainBytes == 2 && r.offloaded }},
	} {
		if r := read(t, example("a", test.change))[0].rules(); !test.check(r) {
			t.Errorf("%v: %+v", test.change, r)
		}
	}
}

// Words that other frameworks use for the same rules are read as well.
func TestRulesInOtherWords(t *testing.T) {
	async := func(rule string) fields {
		return fields{"schedule": "fully async, separate GPUs", "staleness_rule": rule}
	}
	for _, test := range []struct {
		change fields
		check  func(rules) bool
	}{
		{async("staleness_threshold 0.3"), func(r rules) bool { return r.ahead == 0.3 }},
		{fields{"schedule": "asynchronous, separate GPUs, streamed", "optimizer_steps": "4", "staleness_rule": "staleness_threshold=0.5"}, func(r rules) bool { return r.ahead == 0.5 && r.pieces == 4 }},
		{async("staleness_threshold 0"), func(r rules) bool { return r.async && r.ahead == 0 }},
		{async("max_head_offpolicyness 4"), func(r rules) bool { return r.ahead == 4 }},
		{async("max_off_policy_steps: 8"), func(r rules) bool { return r.ahead == 8 }},
		{async("within 3 versions"), func(r rules) bool { return r.ahead == 3 }},
		{fields{"schedule": "2-step off, separate GPUs"}, func(r rules) bool { return r.async && !r.shared && r.ahead == 2 }},
		{fields{"schedule": "one step off policy", "train_gpus": "8", "rollout_gpus": "8"}, func(r rules) bool { return r.async && !r.shared && r.ahead == 1 }},
		{fields{"schedule": "asynchronous, non-colocated", "train_gpus": "8", "rollout_gpus": "8"}, func(r rules) bool { return r.async && !r.shared }},
		{fields{"schedule": "colocate async"}, func(r rules) bool { return r.async && r.shared }},
		{fields{"schedule": "asynchronous"}, func(r rules) bool { return r.async && r.shared }}, // 16 GPUs, 16 that train and 16 that generate
		{fields{"schedule": "synchronous, separate GPUs", "gpus": "", "train_gpus": "8", "rollout_gpus": "8"}, func(r rules) bool { return !r.async && !r.shared }},
		{fields{"sync": "NCCL every 2 steps"}, func(r rules) bool { return r.syncEvery == 2 }},
		{fields{"rollout_tp": "2", "concurrency": "max_num_seqs 32"}, func(r rules) bool { return r.inFlightRollouts == 8*32 }},
		{fields{"concurrency": "32 per engine"}, func(r rules) bool { return r.inFlightRollouts == 16*32 }},
		{fields{"concurrency": "256 rollouts at once"}, func(r rules) bool { return r.inFlightRollouts == 256 }},
		{fields{"rollout_dtype": "MXFP8", "train_dtype": "bf16 with fp8 gradients"}, func(r rules) bool { return r.rolloutBytes == 1 && r.trainBytes == 2 }},
		{fields{"rollout_dtype": "AWQ 4-bit", "train_dtype": "bf16, fp8 cache"}, func(r rules) bool { return r.rolloutBytes < 1 && r.trainBytes == 2 }},
		{fields{"train_dtype": "bf16, LoRA rank 16"}, func(r rules) bool { return r.lora }},
		{fields{"note": "full weights, no LoRA"}, func(r rules) bool { return !r.lora }},
	} {
		if r := read(t, example("a", test.change))[0].rules(); !test.check(r) {
			t.Errorf("%v: %+v", test.change, r)
		}
	}
}

// Counts that others of the row decide are derived, and a prompt that is guessed is said to be.
func TestDerived(t *testing.T) {
	r := read(t, example("a", fields{"sequences": "", "train_gpus": "", "rollout_gpus": "", "old_logprob_pass": "TRUE", "cap_of": "context", "mean_prompt_tokens": ""}),
		example("b", fields{"schedule": "asynchronous, separate GPUs", "train_gpus": "12", "rollout_gpus": "", "mean_prompt_tokens": "500", "cap_of": "Context"}),
		example("c", fields{"schedule": "trainer alone", "train_gpus": "", "rollout_gpus": ""}))
	if a := r[0]; a.Sequences != 1024 || a.TrainGPUs != 16 || a.RolloutGPUs != 16 || !a.OldLogProbs {
		t.Errorf("%+v", a)
	}
	if b := r[1]; b.TrainGPUs != 12 || b.RolloutGPUs != 4 {
		t.Errorf("%+v", b)
	}
	if c := r[2]; c.TrainGPUs != 16 || c.RolloutGPUs != 0 {
		t.Errorf("%+v", c)
	}
	if s, err := newSetup(r[1]); err != nil || s.capTokens != 3596 {
		t.Errorf("a cap of the context: %v %v", s.capTokens, err)
	}
	for i, want := range []string{"[mean_prompt_tokens 256, a question of mathematics or code]", "[]"} {
		if a := answers(t, r, Shipped(), Options{})[i]; a.Step == nil || fmt.Sprint(a.Assumed) != want {
			t.Errorf("assumed %v, want %s; %s", a.Assumed, want, a.Reason)
		}
	}
	replicas, err := Read(strings.NewReader("id,family,model,gpu,schedule,train_gpus,rollout_gpus,rollout_replicas,sequences,mean_prompt_tokens,mean_response_tokens,cap_tokens\n" +
		"one,own,qwen3-8b,H100,asynchronous,8,8,2,512,200,1000,4096\n"))
	if err != nil || replicas[0].engineGPUs() != 4 || replicas[0].replicas() != 2 {
		t.Errorf("%+v: %v", replicas, err)
	}
}

// A model without a preset is counted from its shape, and refused by name without one.
func TestShape(t *testing.T) {
	shape := "26 layers, hidden 2560, 20 heads, 5 kv heads of 128, 256 experts of 1280 top 4, shared expert 2560, vocabulary 128256, window 2048 but for every 4th and the last layer; 67 B, 2 B active"
	m, err := read(t, example("a", fields{"model": "bird-67b", "model_shape": shape}))[0].model()
	if err != nil {
		t.Fatal(err)
	}
	if m.Layers != 26 || m.Experts != 256 || m.ExpertsPerToken != 4 || m.KVHeads != 5 || m.Parameters != 67e9 || m.WindowTokens != 2048 || m.Active() != 2e9 {
		t.Errorf("%+v", m)
	}
	if counted := m.Architecture.Parameters(); math.Abs(counted/67e9-1) > 0.03 {
		t.Errorf("the shape counts %.3g parameters, want about 67e9", counted)
	}
	for change, want := range map[string]string{"": `"bird-67b" is not known`, "26 layers": "does not say: hidden, heads"} {
		a := answers(t, read(t, example("a", fields{"model": "bird-67b", "model_shape": change})), unfitted(), Options{})
		if a[0].Step != nil || !strings.Contains(a[0].Reason, want) {
			t.Errorf("shape %q: %q, want %q", change, a[0].Reason, want)
		}
	}
}

// A row without what decides its time has no answer and says why; what usually follows is assumed.
func TestReasons(t *testing.T) {
	longest := answers(t, read(t, example("a", fields{"mean_response_tokens": "1000000", "cap_tokens": "", "model": "qwen2.5-0.5b"})), Shipped(), Options{})[0]
	if longest.Step == nil && longest.Reason == "" {
		t.Errorf("the longest responses: %+v", longest)
	}
	for want, change := range map[string]fields{
		"sequences":                     {"sequences": "", "samples": ""},
		"mean_response_tokens or cap":   {"mean_response_tokens": "", "cap_tokens": ""},
		"rollout_gpus":                  {"rollout_gpus": "", "schedule": "asynchronous, separate GPUs"},
		`GPU "abacus" is not known`:     {"gpu": "abacus"},
		"an engine takes 32 GPUs":       {"rollout_tp": "32"},
		"the trainer takes 32 GPUs":     {"train_tp": "8", "train_pp": "4"},
		"the weights take":              {"model": "llama-3.1-405b"},
		"not published, and the answer": {"train_gpus": "", "schedule": "asynchronous, separate GPUs"},
	} {
		a := answers(t, read(t, example("a", change)), unfitted(), Options{})[0]
		if a.Step != nil || !strings.Contains(a.Reason, want) {
			t.Errorf("%v: %q, want %q", change, a.Reason, want)
		}
	}
	full := answers(t, read(t, example("a", nil)), unfitted(), Options{})[0]
	guessed := answers(t, read(t, example("a", fields{"mean_response_tokens": "", "rollout_tp": ""})), unfitted(), Options{})[0]
	if len(guessed.Assumed) != 2 || guessed.Step.High/guessed.Step.Low <= full.Step.High/full.Step.Low {
		t.Errorf("assumed %q, interval %v beside %v: want two guesses and a wider interval", guessed.Assumed, guessed.Step, full.Step)
	}
}

// Twice the GPUs, fewer tokens, a faster GPU: no slower. A prediction reads no measurement.
func TestOrder(t *testing.T) {
	a := answers(t, read(t, example("base", nil), example("measured", fields{"m_step_s": "9999", "m_train_s": "7"}),
		example("twice", fields{"gpus": "32", "train_gpus": "32", "rollout_gpus": "32"}), example("short", fields{"mean_response_tokens": "500"}),
		example("b200", fields{"gpu": "b200"}), example("fp8", fields{"rollout_dtype": "fp8", "train_dtype": "fp8"}),
		example("reference", fields{"reference_pass": "yes"})), unfitted(), Options{})
	at := func(i int) float64 { return a[i].Step.Predicted }
	if at(1) != at(0) {
		t.Errorf("a measurement moved its own prediction: %g beside %g", at(1), at(0))
	}
	for i := 2; i <= 5; i++ {
		if at(i) >= at(0) {
			t.Errorf("%s takes %g s, the base %g", a[i].ID, at(i), at(0))
		}
	}
	if at(6) <= at(0) {
		t.Errorf("a reference pass makes it %g s, the base is %g", at(6), at(0))
	}
	p := a[0].Parts
	if sum := p.Generation + p.Training + p.LogProbs + p.Sync; math.Abs(sum/at(0)-1) > 1e-9 {
		t.Errorf("parts of a synchronous step on shared GPUs sum to %g, the step is %g", sum, at(0))
	}
}

// A fit finds constants that made its measurements, and its spreads are narrower than the guesses.
func TestFitFindsConstants(t *testing.T) {
	truth := priors()
	truth[denseUse] *= 1.3
	truth[sharedSwitch] *= 1.5
	var made []fields
	for i, change := range []fields{{}, {"train_gpus": "32", "gpus": "32", "rollout_gpus": "32"}, {"mean_response_tokens": "2000"}, {"mean_response_tokens": "300"},
		{"sequences": "4096", "prompts": "256"}, {"reference_pass": "yes", "recompute": "yes"}, {"schedule": "trainer alone", "train_gpus": "8"}} {
		f := example(fmt.Sprint(i), change)
		s, err := newSetup(read(t, f)[0])
		if err != nil {
			t.Fatal(err)
		}
		p := s.parts(truth)
		f["m_step_s"], f["m_train_s"] = fmt.Sprint(p.Step), fmt.Sprint(p.Training)
		made = append(made, f)
	}
	rows := read(t, made...)
	fit, err := Fit(rows)
	if err != nil {
		t.Fatal(err)
	}
	own := fit.of("own")
	// Traffic and launches explain some of it as well: the fit goes more than half the way from the guess.
	if off := math.Abs(math.Log(own.Values[denseUse] / truth[denseUse])); off > math.Log(1.3)/2 {
		t.Errorf("dense_use %g, made with %g", own.Values[denseUse], truth[denseUse])
	}
	if fit.Spreads[denseUse] >= table[denseUse].Spread {
		t.Errorf("the spread of dense_use stayed at %g", fit.Spreads[denseUse])
	}
	for _, a := range answers(t, rows, fit, Options{}) {
		if off := math.Abs(a.Step.Predicted / *a.Measured - 1); off > 0.03 {
			t.Errorf("row %s: predicted %g, made as %g", a.ID, a.Step.Predicted, *a.Measured)
		}
	}
	if _, err := Fit(read(t, example("a", nil))); err == nil {
		t.Error("a table without measurements was fitted")
	}
	// What is written is read again.
	data, err := fit.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := decode(data)
	if err != nil || math.Abs(again.of("own").Values[denseUse]/own.Values[denseUse]-1) > 1e-3 || len(again.Rows) != len(rows) {
		t.Errorf("%v: %v", again.of("own").Values[denseUse], err)
	}
}

// A calibration moves the other rows of the family towards the reference's error, narrows them, and leaves
// other families alone.
func TestCalibration(t *testing.T) {
	rows := read(t, example("ref", fields{"m_step_s": "1"}), example("same", nil), example("long", fields{"mean_response_tokens": "1500"}), example("other", fields{"family": "theirs"}))
	plain := answers(t, rows, unfitted(), Options{})
	rows[0].Measured["step_s"] = 1.5 * plain[0].Step.Predicted
	got := answers(t, rows, unfitted(), Options{CalibrateOn: []string{"ref"}})
	if got[0].Calibrated != nil || !got[0].Reference || got[3].Calibrated != nil {
		t.Errorf("the reference or another family was calibrated: %+v, %+v", got[0].Calibrated, got[3].Calibrated)
	}
	for _, i := range []int{1, 2} {
		up := got[i].Calibrated.Predicted / plain[i].Step.Predicted
		if up < 1.25 || up > 1.5 {
			t.Errorf("%s moved by ×%.2f, the reference was ×1.50 slower", got[i].ID, up)
		}
		if got[i].Calibrated.High/got[i].Calibrated.Low >= plain[i].Step.High/plain[i].Step.Low {
			t.Errorf("%s is no narrower", got[i].ID)
		}
	}
	for id, want := range map[string]string{"nobody": `no row "nobody"`, "same": "has no m_step_s"} {
		if _, err := Table(t.Context(), rows, unfitted(), Options{CalibrateOn: []string{id}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", id, err, want)
		}
	}
}

// The closed form of a row agrees with the loop that runs in production, simulated.
func TestClosedAgreesWithLoop(t *testing.T) {
	async := fields{"schedule": "asynchronous, separate GPUs", "train_gpus": "8", "rollout_gpus": "8", "staleness_rule": "at most 2 updates old", "concurrency": "192 groups of 16 at once"}
	rows := read(t, example("rollouts bind", async), example("train binds", async), example("sync", nil))
	rows[1].ResponseTokens, rows[1].CapTokens, rows[1].Reference = 400, 1000, true
	for _, r := range rows {
		s, err := newSetup(r)
		if err != nil {
			t.Fatal(err)
		}
		c := priors()
		p := s.parts(c)
		in, name := s.input(c, s.lengthsOf(c[lengthSpread]), p)
		a := Answer{}
		a.Step = estimate(p.Step, 0.1)
		simulated, err := simulated(t, in, name)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(simulated/p.Step-1) > 0.06 {
			t.Errorf("%s: closed form %.1f s, the loop %.1f s", r.ID, p.Step, simulated)
		}
	}
}

// Pairs differ in one choice, and what it brings with it.
func TestPairs(t *testing.T) {
	rows := read(t,
		example("sync", fields{"m_step_s": "100"}),
		example("async", fields{"m_step_s": "60", "schedule": "asynchronous, separate GPUs, at most 1 rollout batch old", "train_gpus": "8", "rollout_gpus": "8", "train_pp": "2"}),
		example("more", fields{"m_step_s": "55", "gpus": "32", "train_gpus": "32", "rollout_gpus": "32"}),
		example("tie", fields{"m_step_s": "98", "rollout_tp": "2"}),
		example("longer", fields{"m_step_s": "300", "mean_response_tokens": "3000", "rollout_tp": "2"}),
		example("both", fields{"m_step_s": "20", "gpus": "32", "train_gpus": "32", "rollout_gpus": "32", "rollout_dtype": "fp8"}))
	a := answers(t, rows, unfitted(), Options{})
	var got []string
	for _, p := range Pairs(rows, a) {
		got = append(got, fmt.Sprintf("%s %s-%s %v %d %d", p.Choice, p.A, p.B, p.Right, p.Async, p.More))
	}
	want := []string{"schedule sync-async true 1 0", "gpus sync-more true 0 1", "schedule async-tie true 1 0", "gpus more-tie false 0 1", "precision more-both true 0 0"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("pairs:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A summary's figures follow from its rows.
func TestSummary(t *testing.T) {
	answer := func(id string, predicted, measured float64) Answer {
		return Answer{ID: id, Family: "own", Grade: "A", Measured: &measured, Step: &Estimate{predicted, predicted / 1.2, predicted * 1.2}}
	}
	r := Summarize(nil, []Answer{answer("a", 110, 100), answer("b", 90, 100), answer("c", 150, 100), {ID: "d", Family: "own", Grade: "A", Reason: "none"}}, unfitted(), nil)
	s := r.Families[0]
	if s.N != 3 || math.Abs(s.Median-0.1) > 1e-9 || math.Abs(s.Worst-0.5) > 1e-9 || math.Abs(s.Covered-2.0/3) > 1e-9 || math.Abs(s.Ratio-1.44) > 1e-9 {
		t.Errorf("%+v", s)
	}
	if want := math.Log(1.44) + 10*math.Log(1.25)/3; math.Abs(s.Score-want) > 1e-9 {
		t.Errorf("interval score %g, want %g", s.Score, want)
	}
}

// partsLine is the line of a row's parts: generation, training, log-probs, sync, tokens a second and GPU.
var partsLine = regexp.MustCompile(`\na( +\d+\.?\d*){5}\n`)

// JSON has the agreed names, null where there is no answer, and every row in its order.
func TestJSON(t *testing.T) {
	rows := read(t, example("a", fields{"m_step_s": "50"}), example("b", fields{"sequences": "", "prompts": ""}))
	r := Summarize(rows, answers(t, rows, Shipped(), Options{CalibrateOn: []string{"a"}}), Shipped(), []string{"a"})
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []map[string]any `json:"rows"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"id", "grade", "measured_step_s", "step_s", "calibrated", "staleness_mean", "wait_share", "reason"} {
		for i, row := range got.Rows {
			if _, ok := row[name]; !ok {
				t.Errorf("row %d has no %s", i, name)
			}
		}
	}
	if got.Rows[1]["step_s"] != nil || got.Rows[1]["reason"] == "" || got.Rows[0]["reason"] != "" {
		t.Errorf("%s", data)
	}
	for _, columns := range []int{80, 140} {
		var text bytes.Buffer
		if err := r.Text(&text, columns); err != nil || !strings.Contains(text.String(), "1 of 2 rows are answered") || !partsLine.MatchString(text.String()) {
			t.Errorf("%v:\n%s", err, &text)
		}
	}
	var page bytes.Buffer
	if err := r.HTML(&page); err != nil || !strings.Contains(page.String(), "<svg") {
		t.Errorf("%v: no picture", err)
	}
}

// A page shows any number of families: those that have no marks of their own are others.
func TestPageOfManyFamilies(t *testing.T) {
	var table []fields
	for i := range 12 {
		table = append(table, example(fmt.Sprint("a", i), fields{"family": fmt.Sprint("family", i), "schedule": "trainer alone", "m_train_s": "5"}))
	}
	rows := read(t, table...)
	r := Summarize(rows, answers(t, rows, Shipped(), Options{}), Shipped(), nil)
	var page bytes.Buffer
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	p := r.plot()
	if last := p.Series[len(p.Series)-1]; len(p.Series) != 8 || p.Series[6].Name != "family6" || last.Name != "others" || len(last.X) != 5 {
		t.Errorf("%d families shown, the last %s with %d rows", len(p.Series), last.Name, len(last.X))
	}
}

// The constants that the program carries are complete, and narrower than the guesses.
func TestShipped(t *testing.T) {
	f := Shipped()
	if len(f.Rows) < 20 {
		t.Fatalf("fitted to %d rows", len(f.Rows))
	}
	for i, c := range table {
		if f.Spreads[i] > c.Spread*1.001 {
			t.Errorf("%s: spread %g, the guess has %g", c.Name, f.Spreads[i], c.Spread)
		}
	}
}

// Rows are answered alike alone and beside others, in their order. Asynchronous rows beyond the bound, and those that the
// loop cannot play, say why they have no staleness.
func TestManyRows(t *testing.T) {
	small := fields{"schedule": "asynchronous, separate GPUs", "train_gpus": "8", "rollout_gpus": "8", "model": "qwen2.5-0.5b", "prompts": "4", "samples": "2", "sequences": "8",
		"mean_response_tokens": "20", "cap_tokens": "60"}
	table := []fields{example("sync", nil), example("shared", fields{"schedule": "colocate async"})}
	for i := range SimulatedRows + 3 {
		table = append(table, example(fmt.Sprint("a", i), small))
	}
	rows := read(t, table...)
	said := map[string]int{}
	got := answers(t, rows, Shipped(), Options{Simulate: true, Said: func(what string, done, all int) { said[what] = max(said[what], done) }})
	if said["answered"] != len(rows) || said["simulated"] != SimulatedRows {
		t.Errorf("progress: %v", said)
	}
	alone := answers(t, rows[2:3], Shipped(), Options{Simulate: true})[0]
	for i, a := range got {
		switch {
		case a.ID != rows[i].ID || a.Step == nil:
			t.Fatalf("row %d: %+v", i, a)
		case i == 0 && a.NotSimulated != "", i == 1 && a.NotSimulated != "the loop has no rule by which GPUs change sides":
			t.Errorf("%s: %q", a.ID, a.NotSimulated)
		case i < 2:
		case *a.Step != *alone.Step:
			t.Errorf("%s: %+v, alone %+v", a.ID, a.Step, alone.Step)
		case i < SimulatedRows+2 && (a.NotSimulated != "" || *a.Staleness != *alone.Staleness || *a.WaitShare != *alone.WaitShare):
			t.Errorf("%s: %q", a.ID, a.NotSimulated)
		case i >= SimulatedRows+2 && (a.Staleness != nil || a.NotSimulated != "the first 200 of a table are simulated"):
			t.Errorf("%s: %q", a.ID, a.NotSimulated)
		}
	}
	lines := strings.Join(Summarize(rows, got, Shipped(), nil).headline(), "\n")
	for _, want := range []string{"missing of 3 asynchronous rows: the first 200", "missing of 1 asynchronous row: the loop"} {
		if !strings.Contains(lines, want) {
			t.Errorf("%q lacks %q", lines, want)
		}
	}
}

// FuzzRead refuses or answers any table, and never panics.
func FuzzRead(f *testing.F) {
	f.Add(written(example("a", nil)))
	f.Add(written(example("a", fields{"model": "x", "model_shape": "2 layers, hidden 8, 2 heads, 2 kv heads of 4, inner 16, vocabulary 100; 0.001 B"})))
	f.Add(written(example("a", fields{"schedule": "asynchronous", "staleness_rule": "at most 3", "samples": "7"})))
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := Read(strings.NewReader(text))
		if err != nil || len(rows) > 3 {
			return
		}
		for _, r := range rows {
			if r.Sequences > 1e5 || r.GPUs > 1e4 || r.RolloutGPUs > 1e4 || r.TrainGPUs > 1e4 || r.CapTokens > 1e5 {
				return
			}
		}
		for _, a := range answers(t, rows, unfitted(), Options{}) {
			if (a.Step == nil) == (a.Reason == "") {
				t.Errorf("%+v: want an answer or a reason", a)
			}
			if a.Step != nil && !(a.Step.Predicted > 0 && a.Step.Low <= a.Step.Predicted && a.Step.Predicted <= a.Step.High && !math.IsInf(a.Step.High, 0)) {
				t.Errorf("%+v", a.Step)
			}
		}
	})
}
