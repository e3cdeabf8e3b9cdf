// Made by `make sites` from the declarations of the public headers that are marked TN_API; not to be edited.
//
// A row for each function. What it is is said by whoever includes this; else it declares the form that takes
// the place of the call, tn_add_at(file, line, a, b).
//
//   TN_OP(name, parameters, arguments)            returns a tensor; what else it made is gone then
//   TN_CALL(result, name, parameters, arguments)  returns something else
//   TN_DO(name, parameters, arguments)            returns nothing
//
// Then a macro for each. It names its arguments where none can have a comma of its own, as a shape or
// options written in place have: the compiler can then say how many the function takes.
// clang-format off
#ifndef TN_OP
#define TN_OP(name, params, args)           TN_FORM(tn_tensor *, name, params)
#define TN_CALL(result, name, params, args) TN_FORM(result, name, params)
#define TN_DO(name, params, args)           TN_FORM(void, name, params)
#endif
TN_CALL(tn_layer *, tn_mlp, (tn_ctx *cx, int n, const int64_t *sizes), (cx, n, sizes))
TN_CALL(tn_layer *, tn_lenet, (tn_ctx *cx), (cx))
TN_CALL(tn_layer *, tn_resnet, (tn_ctx *cx, tn_resnet_opts o), (cx, o))
TN_CALL(tn_layer *, tn_gpt2, (tn_ctx *cx, tn_gpt2_opts o), (cx, o))
#undef TN_OP
#undef TN_CALL
#undef TN_DO

#ifndef TN_PLAIN
#define tn_mlp(...) tn_mlp_at(TN_HERE, __VA_ARGS__)
#define tn_lenet(cx) tn_lenet_at(TN_HERE, cx)
#define tn_resnet(...) tn_resnet_at(TN_HERE, __VA_ARGS__)
#define tn_gpt2(...) tn_gpt2_at(TN_HERE, __VA_ARGS__)
#endif
