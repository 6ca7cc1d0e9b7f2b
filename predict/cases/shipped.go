package cases

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
)

//go:embed fitted.json
var fittedFile []byte

// constantFile is one constant as fitted.json has it.
type constantFile struct {
	Name   string  `json:"name"`
	What   string  `json:"what"`
	Prior  float64 `json:"prior"`
	Value  float64 `json:"value"`
	Spread float64 `json:"spread"`
	// Families are what it is for the software of each family of runs.
	Families map[string]familyFile `json:"families"`
}

type familyFile struct {
	Value  float64 `json:"value"`
	Spread float64 `json:"spread"`
}

// fittedDocument is fitted.json.
type fittedDocument struct {
	// Rows are those that the constants were fitted to, by identifier.
	Rows      []string       `json:"rows"`
	Constants []constantFile `json:"constants"`
}

// Shipped are the constants that the program carries, fitted to published rows: fitted.json, which
// `go run ./cmd/lab study cases` writes.
var Shipped = sync.OnceValue(func() Fitted {
	f, err := decode(fittedFile)
	if err != nil {
		panic("cases: fitted.json: " + err.Error())
	}
	return f
})

// decode reads constants. A constant that is missing keeps its prior.
func decode(data []byte) (Fitted, error) {
	f := unfitted()
	var d fittedDocument
	if err := json.Unmarshal(data, &d); err != nil {
		return f, err
	}
	place := map[string]int{}
	for i, c := range table {
		place[c.Name] = i
	}
	f.Rows, f.Families = d.Rows, map[string]Family{}
	for _, c := range d.Constants {
		i, ok := place[c.Name]
		if !ok || !(c.Value > 0) || !(c.Spread > 0) {
			return f, fmt.Errorf("constant %q, value %g, spread %g: want a known name and positive figures", c.Name, c.Value, c.Spread)
		}
		f.Values[i], f.Spreads[i] = c.Value, c.Spread
		for name, own := range c.Families {
			family := f.Families[name]
			family.Values[i], family.Spreads[i] = own.Value, own.Spread
			f.Families[name] = family
		}
	}
	return f, nil
}

// Encode writes constants as fitted.json has them.
func (f Fitted) Encode() ([]byte, error) {
	d := fittedDocument{Rows: f.Rows}
	for i, c := range table {
		out := constantFile{Name: c.Name, What: c.What, Prior: c.Prior, Value: digits(f.Values[i]), Spread: digits(f.Spreads[i]), Families: map[string]familyFile{}}
		for name, family := range f.Families {
			out.Families[name] = familyFile{digits(family.Values[i]), digits(family.Spreads[i])}
		}
		d.Constants = append(d.Constants, out)
	}
	data, err := json.MarshalIndent(d, "", " ")
	return append(data, '\n'), err
}

// digits rounds to four of them: more would say more than is known.
func digits(v float64) float64 {
	var out float64
	if _, err := fmt.Sscan(fmt.Sprintf("%.4g", v), &out); err != nil {
		return v
	}
	return out
}
