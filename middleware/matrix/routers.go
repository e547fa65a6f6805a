package main

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	holdecho "github.com/holdfast-go/holdfast/middleware/echo"
	holdechov4 "github.com/holdfast-go/holdfast/middleware/echov4"
	holdgin "github.com/holdfast-go/holdfast/middleware/gin"
)

// routers make a node's handler: /{stack}/{any} is h inside of that stack, mounted as that router's
// users do.
var routers = map[string]func([]stack, http.HandlerFunc) http.Handler{
	"mux": func(all []stack, h http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		for _, s := range all {
			mux.Handle("/"+s.name+"/{any}", s.mw(h))
		}
		return mux
	},
	"chi": func(all []stack, h http.HandlerFunc) http.Handler {
		r := chi.NewRouter()
		for _, s := range all {
			r.With(s.mw).Handle("/"+s.name+"/{any}", h)
		}
		return r
	},
	"gin": func(all []stack, h http.HandlerFunc) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		e := gin.New()
		// As gin.Recovery, but that other panics go on to the server, as those of the other routers
		// do.
		e.Use(holdgin.Aborts, gin.CustomRecoveryWithWriter(nil, func(_ *gin.Context, p any) { panic(p) }))
		for _, s := range all {
			e.Any("/"+s.name+"/:any", holdgin.Use(s.mw), gin.WrapF(h))
		}
		return e
	},
	"echo": func(all []stack, h http.HandlerFunc) http.Handler {
		e := echo.New()
		for _, s := range all {
			e.Any("/"+s.name+"/:any", echo.WrapHandler(h), holdecho.Use(s.mw))
		}
		return e
	},
	"echo4": func(all []stack, h http.HandlerFunc) http.Handler {
		e := echov4.New()
		for _, s := range all {
			e.Any("/"+s.name+"/:any", echov4.WrapHandler(h), holdechov4.Use(s.mw))
		}
		return e
	},
	// Around the app and not inside it: adaptor.HTTPMiddleware calls the app's handler when the
	// middleware has returned.
	"fiber": func(all []stack, h http.HandlerFunc) http.Handler {
		app := fiber.New(fiber.Config{BodyLimit: 16 << 20})
		app.All("/:stack/:any", adaptor.HTTPHandler(h))
		inner := adaptor.FiberApp(app)
		mux := http.NewServeMux()
		for _, s := range all {
			mux.Handle("/"+s.name+"/{any}", s.mw(inner))
		}
		return mux
	},
}

var routerNames = []string{"mux", "chi", "gin", "echo", "echo4", "fiber"}
