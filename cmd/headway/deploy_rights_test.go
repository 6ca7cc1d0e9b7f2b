package main

import (
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
)

// podSpec is what this test looks at of a workload's pods.
type podSpec struct {
	Automount *bool `yaml:"automountServiceAccountToken"`
	Security  struct {
		NonRoot bool `yaml:"runAsNonRoot"`
		User    int  `yaml:"runAsUser"`
		Seccomp struct {
			Type string `yaml:"type"`
		} `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers     []podContainer `yaml:"containers"`
	InitContainers []podContainer `yaml:"initContainers"`
}

type podContainer struct {
	Name     string `yaml:"name"`
	Security struct {
		Escalation   *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities struct {
			Add  []string `yaml:"add"`
			Drop []string `yaml:"drop"`
		} `yaml:"capabilities"`
	} `yaml:"securityContext"`
}

// patched is a file that adds a container to the pods of another.
const patched = "fleet-cells.yaml"

// Every pod runs without root, privileges, capabilities, a writable root and a token of the cluster: its namespace
// enforces the restricted profile and would refuse it otherwise.
func TestDeployedRights(t *testing.T) {
	pods := 0
	for file, documents := range manifests(t) {
		for _, m := range documents {
			if m.Kind != "Deployment" && m.Kind != "StatefulSet" {
				continue
			}
			text, err := yaml.Marshal(m.Spec)
			var spec struct {
				Template struct {
					Spec podSpec `yaml:"spec"`
				} `yaml:"template"`
			}
			if err != nil || yaml.Unmarshal(text, &spec) != nil {
				t.Fatalf("%s: %v in %s", file, err, text)
			}
			pods++
			pod := spec.Template.Spec
			if s := pod.Security; file != patched && (pod.Automount == nil || *pod.Automount || !s.NonRoot || s.User == 0 || s.Seccomp.Type != "RuntimeDefault") {
				t.Errorf("%s: the pods of %v run as %+v", file, m.Metadata["name"], pod)
			}
			for _, c := range append(pod.Containers, pod.InitContainers...) {
				s := c.Security
				if s.Escalation == nil || *s.Escalation || !s.ReadOnly || len(s.Capabilities.Add) > 0 || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
					t.Errorf("%s: the container %s may do %+v", file, c.Name, s)
				}
			}
		}
	}
	if pods < 4 {
		t.Errorf("only %d workloads were found", pods)
	}
}
