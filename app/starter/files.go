package starter

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"text/template"

	"github.com/headway-rl/headway/examples"
)

//go:embed templates
var templates embed.FS

// File is a file to write.
type File struct {
	Name    string
	Content []byte
}

// Project is a choice of parts with what follows from it, as the templates read it.
type Project struct {
	Choice
	// Name is the directory's, and the title of its README.
	Name string
	// Task is the worker's environment, environment.name: words where the model is the embedded one, else sums.
	Task string
}

// NewProject returns the project of a whole choice.
func NewProject(c Choice, name string) Project {
	p := Project{Choice: c, Name: name, Task: "sums"}
	if c.Engine == "embedded" {
		p.Task = "words"
	}
	return p
}

// Serves reports whether the engine is a server.
func (p Project) Serves() bool { return p.Engine != "embedded" }

// Trains reports whether a program of the project trains.
func (p Project) Trains() bool { return p.Trainer != "embedded" && p.Trainer != "tinker" }

// Taught reports whether the model learns from a teacher.
func (p Project) Taught() bool { return p.Trainer == "distill" }

// Transforms reports whether the program that trains has a model of transformers.
func (p Project) Transforms() bool { return p.Trainer == "hf" || p.Taught() }

// Plays reports whether a program of the project plays.
func (p Project) Plays() bool { return p.Environment != "tasks" }

// Commands are what trains the project: the control plane first, each in a terminal of its own.
func (p Project) Commands() []string {
	commands := []string{"headway serve run.yaml"}
	if p.Plays() {
		commands = append(commands, fmt.Sprintf("python -m headway.worker environment:%s http://127.0.0.1:7070 --concurrency 64", p.Task))
	}
	if p.Trains() {
		commands = append(commands, "python train.py")
	}
	return commands
}

// Files are the files of the project.
func (p Project) Files() ([]File, error) {
	var files []File
	for _, name := range []string{"run.yaml", "README.md"} {
		content, err := p.rendered(name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, content})
	}
	copies := map[string]string{}
	switch p.Environment {
	case "tasks":
		copies["tasks.jsonl"] = "environments/" + p.Task + ".jsonl"
	case "agent":
		copies["environment.py"] = "environments/" + p.Task + "_agent.py"
	default:
		copies["environment.py"] = "environments/" + p.Task + ".py"
	}
	if p.Trains() {
		copies["train.py"] = p.Trainer + "_grpo/train.py"
		if p.Taught() {
			copies["train.py"] = "distill/train.py"
		}
	}
	for _, name := range []string{"environment.py", "tasks.jsonl", "train.py"} {
		if copies[name] == "" {
			continue
		}
		content, err := fs.ReadFile(examples.Files, copies[name])
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, content})
	}
	return files, nil
}

// rendered is one of the templates, filled in.
func (p Project) rendered(name string) ([]byte, error) {
	text, err := template.ParseFS(templates, "templates/"+name+".tmpl")
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	err = text.Execute(&content, p)
	return content.Bytes(), err
}
