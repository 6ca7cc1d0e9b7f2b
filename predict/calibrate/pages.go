package calibrate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// PageMax bounds a page of /metrics, in bytes.
const PageMax = 16 << 20

// Page is what a server's /metrics said at one moment.
type Page struct {
	// Source tells servers apart. Where is the page's place, for people.
	Source, Where string
	// AtS is when it was read, in seconds on the source's clock.
	AtS float64
	// engines are the readings by engine; software is vllm or sglang.
	software string
	engines  map[string]reading
}

// ParsePage reads one page. The error names the line of the page that cannot be read, or says that neither vLLM nor
// SGLang wrote it.
func ParsePage(source, where string, atS float64, text []byte) (Page, error) {
	if len(text) > PageMax {
		return Page{}, fmt.Errorf("a page of %d bytes, want at most %d", len(text), PageMax)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return Page{}, err
	}
	p := Page{Source: source, Where: where, AtS: atS, engines: map[string]reading{}}
	for _, s := range softwares {
		if err := p.read(s, families); err != nil {
			return Page{}, err
		}
	}
	if p.software == "" {
		return Page{}, errNotEngine
	}
	return p, nil
}

// errNotEngine is a page without the metrics of a known server.
var errNotEngine = errors.New("it has no metrics of vLLM (vllm:…) or SGLang (sglang:…); SGLang needs --enable-metrics")

// read takes the metrics of one kind of server.
func (p *Page) read(s software, families map[string]*dto.MetricFamily) error {
	models := map[string]bool{}
	for q, names := range s.names {
		family := s.family(families, names)
		if family == nil {
			continue
		}
		if p.software != "" && p.software != s.name {
			return fmt.Errorf("it has metrics of %s and of %s: give the pages of one server", p.software, s.name)
		}
		p.software = s.name
		first := firstRanks(family)
		for _, metric := range family.Metric {
			labels := labelsOf(metric)
			if labels[tensorRank] != first[labels[dataRank]] {
				continue
			}
			models[labels["model_name"]] = true
			if q == readNow && labels["mode"] != "prefill_compute" {
				continue
			}
			p.add(s, q, labels, metric)
		}
	}
	if len(models) > 1 {
		return errors.New("it is of several models; give the page of a server of one")
	}
	return nil
}

// Labels of the ranks of an SGLang. Data-parallel ranks are engines; each may be several tensor-parallel ones, all of
// which may say the same.
const dataRank, tensorRank = "dp_rank", "tp_rank"

// labelsOf are a metric's labels.
func labelsOf(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range metric.Label {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// firstRanks are the first tensor-parallel ranks by data-parallel rank.
func firstRanks(family *dto.MetricFamily) map[string]string {
	first := map[string]string{}
	for _, metric := range family.Metric {
		labels := labelsOf(metric)
		have, ok := first[labels[dataRank]]
		rank, _ := strconv.Atoi(labels[tensorRank])
		if least, _ := strconv.Atoi(have); !ok || rank < least {
			first[labels[dataRank]] = labels[tensorRank]
		}
	}
	return first
}

// add puts one metric into the reading of its engine.
func (p *Page) add(s software, q quantity, labels map[string]string, metric *dto.Metric) {
	engine := labels[s.engineLabel]
	r, ok := p.engines[engine]
	if !ok {
		r = reading{values: map[quantity]float64{}}
	}
	add := func(q quantity, v float64) { r.values[q] += v }
	switch {
	case metric.Histogram != nil:
		add(q, metric.Histogram.GetSampleSum())
		add(q.count(), float64(metric.Histogram.GetSampleCount()))
		if q == responseTokens {
			r.lengths = addBuckets(r.lengths, metric.Histogram.Bucket)
		}
	case metric.Counter != nil:
		add(q, metric.Counter.GetValue())
		if q == finished && labels["finished_reason"] == "length" {
			add(cut, metric.Counter.GetValue())
		}
	case metric.Gauge != nil:
		add(q, metric.Gauge.GetValue())
	case metric.Untyped != nil:
		add(q, metric.Untyped.GetValue())
	}
	if rank := labels[dataRank]; q == running && rank != "" && !slices.Contains(r.ranks, rank) {
		r.ranks = append(r.ranks, rank)
	}
	p.engines[engine] = r
}

// bucket is how many lengths were at most so long, cumulative as Prometheus has it.
type bucket struct{ most, count float64 }

// addBuckets adds a histogram's buckets to others with the same bounds.
func addBuckets(to []bucket, more []*dto.Bucket) []bucket {
	for _, b := range more {
		i := slices.IndexFunc(to, func(have bucket) bool { return have.most == b.GetUpperBound() })
		if i < 0 {
			to = append(to, bucket{b.GetUpperBound(), float64(b.GetCumulativeCount())})
			continue
		}
		to[i].count += float64(b.GetCumulativeCount())
	}
	slices.SortFunc(to, func(a, b bucket) int {
		if a.most < b.most {
			return -1
		}
		return 1
	})
	return to
}

// ReadPages reads a file of pages, one after another, each after a line with its time. That is seconds since 1970 or
// RFC 3339, behind a # or alone. A file without such a line is one page, read at the time otherwise. Function left is
// told of pages that cannot be read, with their place, and take gets the others.
func ReadPages(from io.Reader, source string, otherwise time.Time, take func(Page), left func(where, why string)) error {
	lines := bufio.NewReaderSize(from, 64<<10)
	var text bytes.Buffer
	atS, timed, begun, line := float64(otherwise.UnixNano())/1e9, false, 1, 0
	finish := func() {
		where := fmt.Sprintf("%s:%d", source, begun)
		switch {
		case len(bytes.TrimSpace(text.Bytes())) == 0:
		case text.Len() > PageMax:
			left(where, fmt.Sprintf("a page of more than %d bytes", PageMax))
		default:
			p, err := ParsePage(source, where, atS, text.Bytes())
			if err != nil {
				left(where, "a page that cannot be read: "+err.Error())
				break
			}
			take(p)
		}
		text.Reset()
	}
	for {
		piece, err := lines.ReadSlice('\n')
		whole := err == nil || errors.Is(err, io.EOF)
		if err == nil {
			line++
		}
		if at, is := timeLine(piece); is && whole {
			if !timed {
				if len(bytes.TrimSpace(text.Bytes())) > 0 {
					left(fmt.Sprintf("%s:%d", source, begun), "a page before the first time")
					text.Reset()
				}
				timed = true
			} else {
				finish()
			}
			atS, begun = at, line
		} else if text.Len() <= PageMax {
			text.Write(piece)
		}
		if errors.Is(err, io.EOF) {
			finish()
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// timeLine reads a line that says when the page after it was read.
func timeLine(line []byte) (atS float64, is bool) {
	text := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(string(line[:min(len(line), 80)])), "#"))
	if len(text) < len("1700000000") || text[0] < '0' || text[0] > '9' || strings.ContainsAny(text, " {") {
		return 0, false
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return float64(at.UnixNano()) / 1e9, true
	}
	at, err := strconv.ParseFloat(text, 64)
	if err != nil || !(at > 1e9 && at < 1e11) {
		return 0, false
	}
	return at, true
}
