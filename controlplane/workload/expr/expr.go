// Package expr holds the expressions (CEL) of campaign files: those that capture
// a value from an answer, and those that must be true in every trial.
package expr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// ErrNotBool says that an invariant gave something else than true or false.
var ErrNotBool = errors.New("not a bool")

// An expression that needs more than this is a mistake, and must not stop a campaign.
const costLimit = 10_000_000

// Program is a compiled expression. It may be used by several goroutines.
type Program struct {
	source string
	ast    *ast.AST
	prg    cel.Program
}

// Compile compiles source, which may use the variables named, all of them of
// dynamic type. Errors name line and column.
func Compile(source string, variables ...string) (*Program, error) {
	prg, _, err := compile(source, variables)
	return prg, err
}

// CompileBool is Compile for an expression that gives a bool, as far as its type
// is known beforehand.
func CompileBool(source string, variables ...string) (*Program, error) {
	prg, typ, err := compile(source, variables)
	if err != nil {
		return nil, err
	}
	if !typ.IsExactType(cel.BoolType) && !typ.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("%w: it gives a %s", ErrNotBool, typ)
	}
	return prg, nil
}

func compile(source string, variables []string) (*Program, *cel.Type, error) {
	options := make([]cel.EnvOption, 0, len(variables))
	for _, name := range variables {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, nil, fmt.Errorf("set up CEL: %w", err)
	}
	checked, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, nil, issues.Err()
	}
	prg, err := env.Program(checked, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(1000))
	if err != nil {
		return nil, nil, fmt.Errorf("plan the expression: %w", err)
	}
	return &Program{source: source, ast: checked.NativeRep(), prg: prg}, checked.OutputType(), nil
}

// String returns the source.
func (p *Program) String() string { return p.source }

// Keys returns the keys of a variable that the expression names, as in probes.stock,
// probes["stock"] or "stock" in probes; those that it computes are not known.
func (p *Program) Keys(variable string) []string {
	keys := make(map[string]bool)
	ast.PostOrderVisit(p.ast.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			if s := e.AsSelect(); isIdent(s.Operand(), variable) {
				keys[s.FieldName()] = true
			}
		case ast.CallKind:
			of, key, ok := keyed(e.AsCall())
			if !ok || !isIdent(of, variable) || key.Kind() != ast.LiteralKind {
				return
			}
			if text, ok := key.AsLiteral().Value().(string); ok {
				keys[text] = true
			}
		}
	}))
	return slices.Sorted(maps.Keys(keys))
}

// keyed returns a map and its key, if a call has them.
func keyed(c ast.CallExpr) (of, key ast.Expr, ok bool) {
	switch c.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		return c.Args()[0], c.Args()[1], true
	case operators.In:
		return c.Args()[1], c.Args()[0], true
	}
	return nil, nil, false
}

func isIdent(e ast.Expr, name string) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == name }

// Eval evaluates the expression. Errors: a missing key, an operator that does not
// fit its operands, a context that has ended, an expression that costs too much.
func (p *Program) Eval(ctx context.Context, variables map[string]any) (any, error) {
	out, _, err := p.prg.ContextEval(ctx, variables)
	if err != nil {
		return nil, err
	}
	return out.Value(), nil
}

// Bool evaluates an expression that gives a bool. Errors: those of Eval, and
// ErrNotBool.
func (p *Program) Bool(ctx context.Context, variables map[string]any) (bool, error) {
	out, err := p.Eval(ctx, variables)
	if err != nil {
		return false, err
	}
	b, ok := out.(bool)
	if !ok {
		return false, fmt.Errorf("%w: %v", ErrNotBool, out)
	}
	return b, nil
}
