package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// toolRouters are the routers that the clients outside this process are tried with.
var toolRouters = []string{"mux", "gin"}

// installed reports whether a client is on this machine.
var installed = map[string]func() bool{
	"curl": sync.OnceValue(func() bool {
		version, err := exec.Command("curl", "--version").Output()
		return err == nil && strings.Contains(string(version), "HTTP2")
	}),
	"h2load": sync.OnceValue(func() bool { return exec.Command("h2load", "--version").Run() == nil }),
	"java": sync.OnceValue(func() bool { // a JDK of 11 or later, as its source is compiled
		modules, err := exec.Command("java", "--list-modules").Output()
		return err == nil && bytes.Contains(modules, []byte("jdk.compiler")) && bytes.Contains(modules, []byte("java.net.http"))
	}),
}

// runs reports whether the router takes part in the scene, and its client is there.
func (s *scene) runs(router, proto string) bool {
	switch {
	case len(s.only) > 0 && !slices.Contains(s.only, proto) || router == "fiber" && !s.whole:
		return false
	case s.tool != "":
		return slices.Contains(toolRouters, router) && installed[s.tool]()
	}
	return true
}

// missing returns the clients that the selection needs and that this machine has not got.
func missing(sel selection) []string {
	var tools []string
	for i := range scenes {
		tool := scenes[i].tool
		if tool != "" && picked(sel.scenes, scenes[i].name) && !slices.Contains(tools, tool) && !installed[tool]() {
			tools = append(tools, tool)
		}
	}
	return tools
}
