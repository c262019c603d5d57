// Package lines prints what a program of the compat tests has to say: one JSON object per line.
package lines

import (
	"encoding/json"
	"os"
	"sync"
)

var printing sync.Mutex

// Print writes one line, whole.
func Print(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	_, _ = os.Stdout.Write(append(text, '\n'))
}

// End writes the last line and ends the program: with 1 if there is an error.
func End(err error) {
	line := map[string]any{"event": "end", "error": ""}
	if err != nil {
		line["error"] = err.Error()
	}
	Print(line)
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}
