package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"

	"github.com/headway-rl/headway/internal/licences"
)

// bill lists what a binary says that it is linked from, Go's own library and the libraries of the pages inside it.
// The version "" stands for the binary's own. A module whose licence is not known is an error.
func bill(info *debug.BuildInfo, binary []byte, version string) (*cyclonedx.BOM, error) {
	known := map[string]licences.Component{}
	components := []cyclonedx.Component{}
	for _, c := range licences.Components() {
		switch c.Kind {
		case licences.Module:
			known[c.Name] = c
		case licences.Standard:
			c.Version = strings.TrimPrefix(info.GoVersion, "go")
			components = append(components, component(c, "pkg:golang/std@"+c.Version))
		case licences.Library:
			components = append(components, component(c, "pkg:npm/"+strings.Replace(c.Name, "@", "%40", 1)+"@"+c.Version))
		}
	}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		c := known[module.Path]
		if c.Version != module.Version {
			return nil, fmt.Errorf("the licence of %s %s is not in internal/licences/components.csv: go test ./internal/licences -run Current -rewrite", module.Path, module.Version)
		}
		components = append(components, component(c, "pkg:golang/"+module.Path+"@"+module.Version))
	}
	if version == "" {
		version = info.Main.Version
	}
	sum := sha256.Sum256(binary)
	program := cyclonedx.Component{
		BOMRef: "headway", Type: cyclonedx.ComponentTypeApplication, Name: "headway", Version: version,
		PackageURL: "pkg:golang/" + info.Main.Path + "@" + version,
		Licenses:   &cyclonedx.Licenses{{Expression: "Apache-2.0"}},
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}
	document := cyclonedx.NewBOM()
	document.Metadata = &cyclonedx.Metadata{Component: &program}
	document.Components = &components
	return document, nil
}

// component is one entry of the bill, under the name that package URLs have for it.
func component(c licences.Component, url string) cyclonedx.Component {
	return cyclonedx.Component{
		BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: c.Name, Version: c.Version, PackageURL: url,
		Licenses: &cyclonedx.Licenses{{Expression: c.Licence}},
	}
}

// encode writes a bill as JSON that a reader can compare line by line.
func encode(w io.Writer, document *cyclonedx.BOM) error {
	return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(document)
}
