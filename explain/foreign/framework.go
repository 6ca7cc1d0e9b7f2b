package foreign

import "context"

// Framework is what is known of one framework's logs: which keys say what, and how its
// notions turn into ours.
type Framework struct {
	// Name is Log.Framework and the word that --from takes; Aliases are other words for it. Title is for people.
	Name, Title string
	Aliases     []string
	// Marks are keys that this framework logs and no other; a * at the end stands for any rest.
	// One that is seen names the framework.
	Marks []string
	// MarkSettings are the same among the keys of the config.
	MarkSettings []string
	// Hints are keys that it shares with others: they decide where nothing is marked, by their number.
	Hints []string
	// StepKeys count train steps, the first that a row has wins; without any it is the row's own step.
	StepKeys []string
	// Micro numbers a row that counts smaller steps than StepKeys do, and says how many make a step: 0 for not known.
	// Their figures are averaged. Nil for none.
	Micro func(Row, Values) (number int64, each float64, is bool)
	// Inner is how many train steps a row stands for; nil for one.
	Inner func(Values) float64
	// Part tells the parts of a run apart that log the same key in another sense, by a row. The row's
	// keys are then known as part:key; nil where there is one part.
	Part func(Row) string
	// Queue says by which rule of loop.md's its queue goes, and under which preset of ours; both empty where
	// the settings do not tell. Nil where none of ours is its rule.
	Queue func(Values) (policy, preset string)
	// Shared says whether engines and trainer use the same GPUs, by the settings and the logged keys; nil for apart, or
	// not known.
	Shared func(Values) bool
	// Settings and Steps are the rules, those of one figure in order: the first that has a value wins.
	Settings []SettingRule
	Steps    []StepRule
	// Files are files of the framework's own that need a reader of their own.
	Files []OwnFile
	// Adjust sees the log when everything is in it, for what no rule can say; nil for nothing.
	Adjust func(Values, *Log)
	// Definition is Log.Definition.
	Definition string
	// Lacks says of settings and notions, by name, why they may be missing and how to get them.
	Lacks map[string]Lack
	// Notes are the quirks, a sentence each, for the documentation.
	Notes []string
}

// Lack is why a figure cannot be known, and how to have it logged.
type Lack struct{ Why, Get string }

// OwnFile is a kind of file that only one framework writes.
type OwnFile struct {
	// Match is a pattern as of path.Match over the last elements of a path, as many as it has.
	Match string
	// Contents of the file, in words.
	What string
	// Rollouts is whether it holds single rollouts.
	Rollouts bool
	// Read hands its contents to a taker, as Source.Read.
	Read func(ctx context.Context, file string, taker Taker) error
}

// StepRule says how a step's figure follows from keys.
type StepRule struct {
	Notion Notion
	// Keys are what it needs. One with a * in it stands for all that fit, and its value is their sum;
	// Values.Matched counts them.
	Keys []string
	// Formula says how, for people; empty where the one key is the figure.
	Formula string
	// Of computes it; nil takes the one key as it is.
	Of func(Values) (float64, bool)
	// Fold is how steps merge where a long log is thinned.
	Fold Fold
}

// SettingRule says how a setting follows from the config's keys, or from logged ones.
type SettingRule struct {
	Setting Setting
	// Settings are keys of the config, Keys logged ones, that it needs.
	Settings, Keys []string
	// Formula and Of are as in StepRule. Without Of the one key is the figure: of the config as it
	// stands, of the log its last value.
	Formula string
	Of      func(Values) (float64, bool)
}

// Fold says what one figure stands for where a long log is thinned.
type Fold int

// Folds.
const (
	// FoldMean takes the mean.
	FoldMean Fold = iota
	// FoldMax takes the largest.
	FoldMax
)
