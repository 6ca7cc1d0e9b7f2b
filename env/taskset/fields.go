package taskset

import "encoding/json"

// depthMax bounds how deep fields are named, namesMax how many.
const (
	depthMax = 4
	namesMax = 2000
)

// fieldNames are the dotted paths of one object, in its order.
func fieldNames(object json.RawMessage) []string {
	var names []string
	addNames(&names, "", object, 0)
	return names
}

func addNames(names *[]string, prefix string, object json.RawMessage, depth int) {
	members(object, func(name []byte, value json.RawMessage) bool {
		*names = append(*names, prefix+string(name))
		if value[0] == '{' && depth+1 < depthMax {
			addNames(names, prefix+string(name)+".", value, depth+1)
		}
		return len(*names) < namesMax
	})
}
