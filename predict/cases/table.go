package cases

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headway-rl/headway/loop/workload"
)

// Row is one configuration as the table has it. Numbers that are not published are 0.
type Row struct {
	// ID names the row, Family the experiments it belongs to, Grade how complete it is (A, B or C).
	ID, Family, Grade string
	// Framework, Model, Shape, GPU, Schedule, CapOf, RolloutDType, TrainDType, StalenessRule, Sync, Concurrency and
	// Missing are the source's words.
	Framework, Model, Shape, GPU, Schedule, CapOf, RolloutDType, TrainDType, StalenessRule, Sync, Concurrency, Missing string
	// GPUs are all of the run; TrainGPUs and RolloutGPUs are the same ones where the schedule shares them.
	GPUs, TrainGPUs, RolloutGPUs int
	// The layouts: tensor, context, expert and pipeline parallelism.
	RolloutTP, RolloutReplicas, RolloutEP, TrainTP, TrainCP, TrainEP, TrainPP int
	// Prompts of Samples each are the Sequences of one step, trained in OptimizerSteps updates.
	Prompts, Samples, Sequences, OptimizerSteps int
	// PromptTokens and ResponseTokens are means, CapTokens the limit of what CapOf says.
	PromptTokens, ResponseTokens, CapTokens float64
	// Recompute, OldLogProbs and Reference say which passes the trainer does beside the update.
	Recompute, OldLogProbs, Reference bool
	// Measured are the columns that begin with m_ and hold a number, without that beginning.
	Measured map[string]float64
	// Fields are all columns as they stand.
	Fields map[string]string

	// siblings is of how many other rows ResponseTokens is the median, 0 where it is the row's own.
	siblings int
	// unread are inputs that cannot be read, with their column and what to write there: the row has no answer.
	// uncompared are measured figures that cannot be read.
	unread, uncompared []string
}

// needed are the columns without which nothing can be answered.
var needed = []string{"id", "family", "model", "gpu", "schedule", "train_gpus", "rollout_gpus", "sequences", "mean_prompt_tokens", "mean_response_tokens", "cap_tokens"}

// rowsMax bounds a table: more is no table of published runs.
const rowsMax = 100000

// countMost bounds a count of GPUs or sequences: more is a mistake, and would take minutes a row.
const countMost = 1e5

// Record is one line of a table: its fields by column, and where it stands.
type Record struct {
	Line   int
	Fields map[string]string
}

// separators are what spreadsheets write between fields.
const separators = ",;\t"

// separator is the one that a table's first line has most of; a line of comments is none.
func separator(text []byte) rune {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		most, count := ',', 0
		for _, s := range separators {
			if n := bytes.Count(line, []byte(string(s))); n > count {
				most, count = s, n
			}
		}
		return most
	}
	return ','
}

// opened is a table's reader, past the mark that spreadsheets begin a file with.
func opened(r io.Reader) (*csv.Reader, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !bytes.ContainsRune(text, '\n') { // lines as old spreadsheets end them
		text = bytes.ReplaceAll(text, []byte{'\r'}, []byte{'\n'})
	}
	if !utf8.Valid(text) {
		return nil, errors.New("the table is no UTF-8 text: save it as comma-separated values in UTF-8")
	}
	table := csv.NewReader(bytes.NewReader(text))
	table.Comment, table.FieldsPerRecord, table.Comma = '#', -1, separator(text)
	return table, nil
}

// trimmed is a line without the empty fields at its end, of which spreadsheets write many.
func trimmed(record []string) []string {
	for len(record) > 0 && strings.TrimSpace(record[len(record)-1]) == "" {
		record = record[:len(record)-1]
	}
	return record
}

// Records reads a table: separated by commas, semicolons or tabs. The first line that is not a comment names
// the columns, in any case. Lines that begin with # are comments, and lines without a field are left out. An error
// names the line.
func Records(r io.Reader) ([]Record, error) {
	table, err := opened(r)
	if err != nil {
		return nil, err
	}
	header, err := table.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the table is empty: its first line names the columns, such as " + strings.Join(needed, ", "))
	}
	if err != nil {
		return nil, err
	}
	for i, name := range header {
		header[i] = strings.ToLower(strings.TrimSpace(name))
		if header[i] != "" && slices.Index(header, header[i]) < i {
			line, _ := table.FieldPos(i)
			return nil, fmt.Errorf("line %d: the column %s stands twice", line, header[i])
		}
	}
	header = trimmed(header)
	var records []Record
	for {
		record, err := table.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := table.FieldPos(0)
		filled := trimmed(record)
		if len(filled) == 0 {
			continue
		}
		if len(record) < len(header) || len(filled) > len(header) {
			return nil, fmt.Errorf("line %d: %d fields, and the first line names %d columns: a field with a separator in it wants quotes", line, len(record), len(header))
		}
		fields := make(map[string]string, len(header))
		for i, name := range header {
			fields[name] = strings.TrimSpace(record[i])
		}
		if records = append(records, Record{line, fields}); len(records) > rowsMax {
			return nil, fmt.Errorf("line %d: more than %d rows", line, rowsMax)
		}
	}
	if len(records) == 0 {
		if missing := lacking(header); len(missing) > 0 {
			return nil, missingColumns(missing)
		}
		return nil, errors.New("the table has columns and no row")
	}
	return records, nil
}

// lacking are the needed columns that a header does not have.
func lacking(header []string) (missing []string) {
	for _, name := range needed {
		if !slices.Contains(header, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

func missingColumns(names []string) error {
	return fmt.Errorf("the table has no column %s: add it, empty where a figure is not published", strings.Join(names, ", "))
}

// Read reads a table of runs. Unknown columns are kept and not read. A figure that cannot be read leaves its row
// without an answer, and the row says why. An error names the line, or all columns that are missing.
func Read(r io.Reader) ([]Row, error) {
	records, err := Records(r)
	if err != nil {
		return nil, err
	}
	return Rows(records)
}

// Rows reads records as runs.
func Rows(records []Record) ([]Row, error) {
	if missing := lacking(slices.Collect(maps.Keys(records[0].Fields))); len(missing) > 0 {
		return nil, missingColumns(missing)
	}
	var rows []Row
	seen := map[string]int{}
	for _, record := range records {
		row := parse(record)
		if row.ID == "" {
			return nil, fmt.Errorf("line %d: column id: it is empty, and every row needs a name", record.Line)
		}
		if before, twice := seen[row.ID]; twice {
			return nil, fmt.Errorf("line %d: the id %s is that of line %d: give each row its own", record.Line, row.ID, before)
		}
		seen[row.ID] = record.Line
		rows = append(rows, row)
	}
	return rows, nil
}

// parse fills a row.
func parse(record Record) Row {
	r := Row{Fields: record.Fields, Measured: map[string]float64{}, ID: record.Fields["id"]}
	for name, to := range map[string]*string{
		"family": &r.Family, "grade": &r.Grade, "framework": &r.Framework, "model": &r.Model, "model_shape": &r.Shape, "gpu": &r.GPU,
		"schedule": &r.Schedule, "cap_of": &r.CapOf, "rollout_dtype": &r.RolloutDType, "train_dtype": &r.TrainDType,
		"staleness_rule": &r.StalenessRule, "sync": &r.Sync, "concurrency": &r.Concurrency, "missing": &r.Missing,
	} {
		*to = published(r.Fields[name])
	}
	refuse := func(column, format string, args ...any) {
		r.unread = append(r.unread, fmt.Sprintf("line %d, column %s: ", record.Line, column)+fmt.Sprintf(format, args...))
	}
	for name, to := range map[string]*int{
		"gpus": &r.GPUs, "train_gpus": &r.TrainGPUs, "rollout_gpus": &r.RolloutGPUs, "rollout_tp": &r.RolloutTP, "rollout_replicas": &r.RolloutReplicas,
		"rollout_ep": &r.RolloutEP, "train_tp": &r.TrainTP, "train_cp": &r.TrainCP, "train_ep": &r.TrainEP, "train_pp": &r.TrainPP,
		"prompts": &r.Prompts, "samples": &r.Samples, "sequences": &r.Sequences, "optimizer_steps": &r.OptimizerSteps,
	} {
		v, err := number(r.Fields[name], countMost)
		if err == nil && v != math.Trunc(v) {
			err = fmt.Errorf("%q: write a whole number", r.Fields[name])
		}
		if err != nil {
			refuse(name, "%v", err)
		} else {
			*to = int(v)
		}
	}
	for name, to := range map[string]*float64{"mean_prompt_tokens": &r.PromptTokens, "mean_response_tokens": &r.ResponseTokens, "cap_tokens": &r.CapTokens} {
		v, err := number(r.Fields[name], workload.MaxTokens)
		if err != nil {
			refuse(name, "%v", err)
		}
		*to = v
	}
	for name, to := range map[string]*bool{"recompute": &r.Recompute, "old_logprob_pass": &r.OldLogProbs, "reference_pass": &r.Reference} {
		*to = yes.MatchString(r.Fields[name])
	}
	r.derive()
	if r.Sequences > countMost {
		refuse("sequences", "%d prompts of %d samples are more than %.0f sequences", r.Prompts, r.Samples, countMost)
	}
	slices.Sort(r.unread)
	r.measure()
	return r
}

// compared are the measured columns that predictions are held to.
var compared = []string{"step_s", "train_s", "sync_s", "gen_s", "total_tokens_per_s"}

// measure reads the measured columns. Of those that are compared, a figure that cannot be read is said.
func (r *Row) measure() {
	for name, text := range r.Fields {
		measured, ok := strings.CutPrefix(name, "m_")
		if !ok || published(text) == "" {
			continue
		}
		if v, err := number(text, math.MaxFloat64); err == nil {
			r.Measured[measured] = v
		} else if slices.Contains(compared, measured) {
			r.uncompared = append(r.uncompared, fmt.Sprintf("no %s: %q is no number", name, text))
		}
	}
	slices.Sort(r.uncompared)
}

// yes is how tables say that a pass is done.
var yes = regexp.MustCompile(`(?i)^(?:yes|true|full|on|1$)`)

// derive fills in the counts that others of the row decide.
func (r *Row) derive() {
	if r.Sequences == 0 {
		r.Sequences = r.Prompts * r.Samples
	}
	rules := r.rules()
	switch {
	case rules.kind == kindTrain && r.TrainGPUs == 0:
		r.TrainGPUs = r.GPUs
	case rules.shared && r.TrainGPUs == 0 && r.RolloutGPUs == 0:
		r.TrainGPUs, r.RolloutGPUs = r.GPUs, r.GPUs
	case rules.shared:
		r.TrainGPUs, r.RolloutGPUs = cmp.Or(r.TrainGPUs, r.RolloutGPUs), cmp.Or(r.RolloutGPUs, r.TrainGPUs)
	case rules.kind == kindStep && r.TrainGPUs == 0 && r.RolloutGPUs > 0 && r.GPUs > r.RolloutGPUs:
		r.TrainGPUs = r.GPUs - r.RolloutGPUs
	case rules.kind == kindStep && r.RolloutGPUs == 0 && r.TrainGPUs > 0 && r.GPUs > r.TrainGPUs:
		r.RolloutGPUs = r.GPUs - r.TrainGPUs
	}
	if r.RolloutTP == 0 && r.RolloutEP == 0 && r.RolloutReplicas > 0 && r.RolloutGPUs%r.RolloutReplicas == 0 {
		r.RolloutTP = r.RolloutGPUs / r.RolloutReplicas
	}
}

// absent is how tables say that a figure is not published.
var absent = regexp.MustCompile(`(?i)^(?:[-–—?.]+|n\.?/?a\.?|nan|none|null|unknown|not (?:published|given|reported|stated|known))$`)

// published is a field's text, "" where it says that there is none.
func published(text string) string {
	if absent.MatchString(text) {
		return ""
	}
	return text
}

// thousands are numbers whose digits are set apart by threes: by a comma, an apostrophe, a low line or a space.
var thousands = regexp.MustCompile(`^[1-9]\d{0,2}(?:[,'’_ \x{a0}\x{2009}\x{202f}]\d{3})+(?:\.\d+)?$`)

// number reads a figure from 0 to most; one that is not published is 0.
func number(text string, most float64) (float64, error) {
	digits := strings.TrimLeft(published(text), "~≈ ")
	if thousands.MatchString(digits) {
		digits = strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' || r == '.' {
				return r
			}
			return -1
		}, digits)
	}
	if digits == "" {
		return 0, nil
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(v >= 0 && v <= most) {
		return 0, fmt.Errorf("%q: write a number from 0 to %.0f without its unit, or nothing where it is not published", text, most)
	}
	return v, nil
}
