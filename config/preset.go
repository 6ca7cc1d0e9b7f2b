package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Preset is the loop of a framework as settings of this one.
type Preset struct {
	// Name is the value of the key preset.
	Name string `json:"name"`
	// Framework is what it stands for.
	Framework string `json:"framework"`
	// Summary says the rule in one line.
	Summary string `json:"summary"`
	// Settings are the keys it sets, in the schema's order.
	Settings []PresetSetting `json:"settings"`
	// Differs says where the framework does something else.
	Differs []string `json:"differs"`
	// Sources are where the rule was read: paths in the framework's repository, or papers.
	Sources []string `json:"sources"`
}

// PresetSetting is one key that a preset sets.
type PresetSetting struct {
	// Key and Value are as in a document.
	Key   string `json:"key"`
	Value string `json:"value"`
	// From says what it is in the framework, or why it is so here.
	From string `json:"from"`
	// Fixed keys are what makes the preset what it is: no document may say otherwise.
	Fixed bool `json:"fixed,omitempty"`
}

// Presets lists every preset, in the order of the schema.
func Presets() []Preset { return append([]Preset(nil), presets...) }

// presetOf returns the preset of a name.
func presetOf(name string) (Preset, bool) {
	for _, p := range presets {
		if p.Name == name {
			return p, true
		}
	}
	return Preset{}, false
}

// presetFile is the File of errors about what a preset says.
func presetFile(name string) string { return "preset " + name }

// presetDefaults gives the keys of the document's preset that nobody gave. A
// preset that an override names comes before the document and replaces its queue,
// so that presets can be compared on one document.
func (c *Config) presetDefaults() {
	p, ok := presetOf(c.Preset)
	if !ok {
		return // none, or refused by its name
	}
	as := rankPreset
	if c.overridden("preset") {
		as = rankPresetOverride
		c.readVerlKeys() // the sizes they say are the document's, whatever its policy was
		for _, section := range []string{"rollout.partial", "queue", "trainer.correction"} {
			c.dropOutranked(section, as)
		}
	}
	d := decoder{file: presetFile(p.Name), rank: as, origin: c.origin}
	for _, s := range p.Settings {
		if at, given := c.rankOf(s.Key); given && at >= as {
			continue
		}
		d.override(reflect.ValueOf(c).Elem(), s.Key+"="+s.Value)
	}
	if len(d.errs) > 0 {
		panic("config: " + d.errs.Error())
	}
}

// dropOutranked clears the keys of a section that were given less strongly than
// that: a preset that an override names replaces the section.
func (c *Config) dropOutranked(section string, as rank) {
	for _, key := range known(section) {
		path := join(section, key.key)
		if at, given := c.rankOf(path); !given || at >= as {
			continue
		}
		_, value, err := locate(path, reflect.ValueOf(c).Elem())
		if err != nil {
			panic("config: " + err.Error())
		}
		value.SetZero()
		c.origin.forget(path)
	}
}

// preset refuses values under which the document's preset would no longer be
// what its name says.
func (v *validator) preset() {
	p, ok := presetOf(v.config.Preset)
	if !ok {
		return
	}
	for _, s := range p.Settings {
		if !s.Fixed {
			continue
		}
		_, value, err := locate(s.Key, reflect.ValueOf(&v.config).Elem())
		if err != nil {
			panic("config: preset " + p.Name + ": " + err.Error())
		}
		if have := fmt.Sprint(value.Interface()); have != s.Value {
			v.fail(s.Key, value.Interface(), fmt.Sprintf("contradicts preset %s, whose %s is %s", p.Name, s.Key, s.Value),
				fmt.Sprintf("leave out %s, or preset; headway config --set preset=%s prints its keys, to start from without it", s.Key, p.Name))
			return // what follows from it would be refused too
		}
	}
}

// presetNote names the preset behind a key's value, "" where none is.
func (c Config) presetNote(path string) string {
	at := c.placeOf(path)
	if name, ok := strings.CutPrefix(at.file, presetFile("")); ok && c.given(path) {
		return ", which preset " + name + " sets"
	}
	return ""
}
