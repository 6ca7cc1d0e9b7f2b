package cases

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/predict/hardware"
)

// model is the row's: a preset by its name, else the shape in words.
func (r Row) model() (hardware.Model, error) {
	m, err := hardware.ModelNamed(r.Model)
	if err != nil && r.Shape == "" {
		return m, fmt.Errorf("%w; of another one write the model_shape, such as \"36 layers, hidden 4096, 32 heads, 8 kv heads of 128, intermediate 12288, vocabulary 151936\"", err)
	}
	if err == nil {
		return m, nil
	}
	shaped, shapeErr := modelOf(r.Model, r.Shape)
	if shapeErr != nil {
		return hardware.Model{}, fmt.Errorf("model %q has no preset, and its shape cannot be used: %w", r.Model, shapeErr)
	}
	return shaped, nil
}

// What shapes say, in words of the table.
var (
	shapeLayers  = regexp.MustCompile(`(\d+) layers`)
	shapeHidden  = regexp.MustCompile(`hidden (\d+)`)
	shapeHeads   = regexp.MustCompile(`(\d+) heads`)
	shapeKV      = regexp.MustCompile(`(\d+) kv heads of (\d+)`)
	shapeExperts = regexp.MustCompile(`(\d+) experts of (\d+) top (\d+)`)
	shapeShared  = regexp.MustCompile(`shared expert (\d+)`)
	shapeInner   = regexp.MustCompile(`(?:intermediate|inner) (\d+)`)
	shapeTable   = regexp.MustCompile(`vocabulary (\d+)`)
	shapeWindow  = regexp.MustCompile(`window (\d+)`)
	shapeEvery   = regexp.MustCompile(`every (\d+)(?:st|nd|rd|th)`)
	shapeTotal   = regexp.MustCompile(`(\d+(?:\.\d+)?) ?B\b`)
	shapeActive  = regexp.MustCompile(`(\d+(?:\.\d+)?) ?B active`)
)

// modelOf counts a model from a shape such as "26 layers, hidden 2560, 20 heads, 5 kv heads of
// 128, 256 experts of 1280 top 4, shared expert 2560, vocabulary 128256; 67 B, 2 B active".
func modelOf(name, shape string) (hardware.Model, error) {
	ints := func(re *regexp.Regexp) []int {
		found := re.FindStringSubmatch(shape)
		out := make([]int, re.NumSubexp())
		for i := 1; i < len(found); i++ {
			out[i-1], _ = strconv.Atoi(found[i])
		}
		return out
	}
	a := hardware.Architecture{Layers: ints(shapeLayers)[0], Hidden: ints(shapeHidden)[0], Heads: ints(shapeHeads)[0], Vocabulary: ints(shapeTable)[0], Intermediate: ints(shapeInner)[0]}
	kv, experts := ints(shapeKV), ints(shapeExperts)
	a.KVHeads, a.HeadDim = kv[0], kv[1]
	a.Experts, a.ExpertIntermediate, a.ExpertsPerToken = experts[0], experts[1], experts[2]
	if shared := ints(shapeShared)[0]; shared > 0 && a.ExpertIntermediate > 0 {
		a.SharedExperts = max(shared/a.ExpertIntermediate, 1)
	}
	if window := ints(shapeWindow)[0]; window > 0 {
		a.WindowTokens, a.WindowLayers = window, a.Layers
		if every := ints(shapeEvery)[0]; every > 0 {
			a.WindowLayers -= a.Layers / every
		}
	}
	var lacks []string
	for _, part := range []struct {
		what string
		n    int
	}{{"layers", a.Layers}, {"hidden", a.Hidden}, {"heads", a.Heads}, {"kv heads of", a.KVHeads}, {"vocabulary", a.Vocabulary}, {"experts of, or intermediate", a.Intermediate + a.Experts}} {
		if part.n <= 0 {
			lacks = append(lacks, part.what)
		}
	}
	if len(lacks) > 0 {
		return hardware.Model{}, fmt.Errorf("%q does not say: %s", shape, strings.Join(lacks, ", "))
	}
	m := hardware.ModelOf(name, a, "model_shape of the table")
	if total := billions(shapeTotal, shape); total > 0 {
		m.Parameters = total
	}
	if active := billions(shapeActive, shape); active > 0 && m.Experts > 0 {
		m.ActiveParameters = max(active, m.LookupParameters)
	}
	return m, m.Validate()
}

// billions reads such a figure, in parameters.
func billions(re *regexp.Regexp, shape string) float64 {
	found := re.FindStringSubmatch(shape)
	if found == nil {
		return 0
	}
	v, _ := strconv.ParseFloat(found[1], 64)
	return v * 1e9
}
