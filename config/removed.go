package config

// removed are the keys that earlier versions had, each with the reason that it is gone.
var removed = map[string]string{
	"control.objective": "throughput was its only value, and the controller always aims at it",
}

// removedProblem says that a key was removed, "" for a key that was not.
func removedProblem(path string) string {
	why, was := removed[path]
	if !was {
		return ""
	}
	return "was removed: " + why + "; delete it"
}

// ParseRecorded is [Parse] for a document that an earlier version of the program may have written, such as the one in
// a trace. Keys that were removed since have no effect, and keys that were renamed since mean what they meant.
func ParseRecorded(name string, text []byte) (Config, error) {
	c, errs := parse(name, text, true)
	return c, errs.orNil()
}

// LoadRecorded is [Load] for the document of a run directory, as [ParseRecorded] reads it.
func LoadRecorded(path string) (Config, error) {
	text, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := ParseRecorded(path, text)
	if err != nil {
		return Config{}, err
	}
	return c.Resolve()
}
