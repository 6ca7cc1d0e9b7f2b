package main

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/doctor"
	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/predict/plan"
	"github.com/headway-rl/headway/predict/theory"
)

// outputs are the documents of --json that others build on, by the name of their type in the schema
// and in Python. Rows is the list that a frame of such a result has by default.
var outputs = []struct {
	name, command, rows string
	document            reflect.Type
}{
	{"Prediction", "predict", "levers", reflect.TypeFor[experiment.Answer]()},
	{"Simulation", "simulate", "series", reflect.TypeFor[experiment.Simulation]()},
	{"Grid", "simulate --grid, --seeds", "points", reflect.TypeFor[gridReport]()},
	{"Plan", "plan", "frontier", reflect.TypeFor[plan.Plan]()},
	{"Examination", "doctor", "findings", reflect.TypeFor[examination]()},
	{"Diagnosis", "diagnose", "findings", reflect.TypeFor[diagnosis.Report]()},
	{"Resimulation", "resimulate", "arms", reflect.TypeFor[compare.Resimulation]()},
	{"Comparison", "compare", "runs", reflect.TypeFor[compare.Comparison]()},
	{"ErrorDocument", "every command, where it fails before its result", "", reflect.TypeFor[failure.Document]()},
}

// seriesPoint is one train step of a simulation's series, which predict/experiment writes by hand.
type seriesPoint struct {
	Step int64 `json:"step"`
	// TimeS is when the step ended, PeriodS since the step before, TrainS the step alone.
	TimeS   float64 `json:"time_s"`
	PeriodS float64 `json:"period_s"`
	TrainS  float64 `json:"train_s"`
	// Staleness is the mean of the step's groups in versions, PQS and IQS its two parts.
	Staleness      float64 `json:"staleness"`
	PQS            float64 `json:"pqs"`
	IQS            float64 `json:"iqs"`
	StalenessMax   int64   `json:"staleness_max"`
	TokenStaleness float64 `json:"token_staleness"`
	TrainedTokens  int64   `json:"trained_tokens"`
	// TrainerIdleRatio and RolloutIdleRatio are shares of the period.
	TrainerIdleRatio float64 `json:"trainer_idle_ratio"`
	RolloutIdleRatio float64 `json:"rollout_idle_ratio"`
	// QueueGroups and BacklogRollouts are as the step began.
	QueueGroups     int64 `json:"queue_groups"`
	BacklogRollouts int64 `json:"backlog_rollouts"`
	// Control is the controller after the step, absent without a target.
	Control map[string]any `json:"control,omitempty"`
}

// gridRun is one simulation of a grid, or one seed: that of a single simulation without its series and clock.
type gridRun struct {
	Seed uint64            `json:"seed"`
	Set  map[string]string `json:"set"`
	// Error says why it was not simulated to its end; there is nothing else then.
	Error string `json:"error,omitempty"`
	experiment.Simulation
}

// written are fields whose JSON is not that of their Go type.
var written = map[string]reflect.Type{
	"experiment.Simulation.Series": reflect.TypeFor[[]seriesPoint](),
	"main.gridReport.Runs":         reflect.TypeFor[[]gridRun](),
}

// marshalled are types that write their own JSON, by the type that it is of.
var marshalled = map[reflect.Type]reflect.Type{
	reflect.TypeFor[theory.Figure]():   reflect.TypeFor[*float64](),
	reflect.TypeFor[doctor.Figures]():  reflect.TypeFor[map[string]float64](),
	reflect.TypeFor[config.Config]():   reflect.TypeFor[map[string]any](),
	reflect.TypeFor[json.RawMessage](): reflect.TypeFor[any](),
}

// TestOutputReference holds the JSON schema of outputs, and Python's types of results, to the program's types.
func TestOutputReference(t *testing.T) {
	d := &describer{t: t, named: map[reflect.Type]*outputType{}, comments: map[string]map[string]comment{}}
	for _, o := range outputs {
		of := d.object(o.document)
		of.name, of.command, of.rows = o.name, o.command, o.rows
	}
	d.distinguish()
	current(t, "../../docs/reference/outputs.schema.json", d.schema())
	current(t, "../../clients/python/src/headway/results.py", d.python())
}

// partial are types of which a document may have less than what they embed.
var partial = map[reflect.Type]bool{reflect.TypeFor[gridRun](): true}

// outputType is one object of an output.
type outputType struct {
	goType  reflect.Type
	name    string
	command string // of a whole output
	rows    string
	doc     string
	fields  []outputField
}

// outputField is one key.
type outputField struct {
	key, doc string
	shape    shape
	optional bool
}

// shape is what a value is: a scalar, or an object, or a list or map of shapes.
type shape struct {
	scalar   string // boolean, integer, number, string, "" for any
	object   *outputType
	list     *shape
	mapping  *shape
	nullable bool
}

// describer collects the types that outputs reach, in the order in which they are met, the inner first.
type describer struct {
	t        *testing.T
	named    map[reflect.Type]*outputType
	order    []*outputType
	comments map[string]map[string]comment
}

// object describes a struct.
func (d *describer) object(of reflect.Type) *outputType {
	if known := d.named[of]; known != nil {
		return known
	}
	name := of.Name()
	made := &outputType{goType: of, name: strings.ToUpper(name[:1]) + name[1:]}
	d.named[of] = made
	made.doc = d.comment(of, "").text
	d.fields(made, of)
	d.order = append(d.order, made)
	return made
}

// fields adds those of a struct and of what it embeds, in their order; an outer key hides an inner one.
func (d *describer) fields(made *outputType, of reflect.Type, hidden ...string) {
	outer := slices.Clone(hidden)
	for i := range of.NumField() {
		if f := of.Field(i); !f.Anonymous || f.Tag.Get("json") != "" {
			outer = append(outer, keyOf(f))
		}
	}
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Anonymous && f.Tag.Get("json") == "" {
			d.embedded(made, f.Type, partial[of], outer)
			continue
		}
		key := keyOf(f)
		if key == "" || slices.Contains(hidden, key) {
			continue
		}
		kind := f.Type
		if by, is := written[of.String()+"."+f.Name]; is {
			kind = by
		}
		made.fields = append(made.fields, outputField{key: key, doc: d.comment(of, f.Name).text, shape: d.shape(kind), optional: strings.Contains(f.Tag.Get("json"), ",omit")})
	}
}

// embedded adds the fields of a struct within another; those behind a pointer may be absent.
func (d *describer) embedded(made *outputType, of reflect.Type, optional bool, outer []string) {
	from := len(made.fields)
	if of.Kind() == reflect.Pointer {
		of, optional = of.Elem(), true
	}
	d.fields(made, of, outer...)
	for i := from; i < len(made.fields) && optional; i++ {
		made.fields[i].optional = true
	}
}

// keyOf is the key of a field in JSON, "" for none.
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case !f.IsExported() || key == "-":
		return ""
	case key == "":
		return f.Name
	}
	return key
}

// shape describes a Go type.
func (d *describer) shape(of reflect.Type) shape {
	if by, is := marshalled[of]; is {
		of = by
	}
	if of.Kind() != reflect.Pointer && of.Implements(reflect.TypeFor[json.Marshaler]()) {
		d.t.Fatalf("%s writes its own JSON: add it to marshalled", of)
	}
	switch of.Kind() {
	case reflect.Pointer:
		inner := d.shape(of.Elem())
		inner.nullable = true
		return inner
	case reflect.Struct:
		if of.Name() == "" {
			d.t.Fatalf("%s has no name: give it one", of)
		}
		return shape{object: d.object(of)}
	case reflect.Slice, reflect.Array:
		inner := d.shape(of.Elem())
		return shape{list: &inner}
	case reflect.Map:
		inner := d.shape(of.Elem())
		return shape{mapping: &inner}
	case reflect.Bool:
		return shape{scalar: "boolean"}
	case reflect.String:
		return shape{scalar: "string"}
	case reflect.Float64, reflect.Float32:
		return shape{scalar: "number"}
	case reflect.Interface:
		return shape{}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if of.Implements(reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()) {
			return shape{scalar: "string"}
		}
		return shape{scalar: "integer"}
	}
	d.t.Fatalf("%s: no shape for %s", of, of.Kind())
	return shape{}
}

// distinguish names types apart that have one name in several packages: by the package, too.
func (d *describer) distinguish() {
	count := map[string]int{}
	for _, of := range d.order {
		count[of.name]++
	}
	for _, of := range d.order {
		if count[of.name] > 1 && of.command == "" {
			from := of.goType.PkgPath()[strings.LastIndex(of.goType.PkgPath(), "/")+1:]
			of.name = strings.ToUpper(from[:1]) + from[1:] + of.name
		}
	}
}
