"""torch and onnxruntime as peers of attnc's kernel bench; the protocol is that of contestant/peer.rs.

    python peers.py torch|onnxruntime cpu|cuda|any THREADS

Operands stay on the device, a run is the work and waiting for its end.
"""
import json
import sys
import time

import_error = None
try:
    import numpy
except ImportError as error:
    import_error = error


def load(operand):
    values = numpy.fromfile(operand["file"], dtype=operand["dtype"])
    return values.reshape(operand["shape"])


def allowed(request):
    """Which keys a query sees, where that is a window: bool[q, kv], true = attend."""
    row = numpy.arange(request["q"])[:, None]
    column = numpy.arange(request["kv"])[None, :]
    return (column <= row) & (column > row - request["window"])


class Torch:
    def __init__(self, device, threads):
        import torch

        self.torch = torch
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        if device == "any":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("torch %s finds no CUDA device" % torch.__version__)
        self.device = device
        self.name = "torch " + device
        self.version = "torch " + torch.__version__
        # Smoke runs compare with an adapter, wherever torch is.
        self.side = "gpu" if device == "cuda" else "cpu"
        if device == "cuda":
            self.version += " on " + torch.cuda.get_device_name()

    def prepare(self, request):
        torch = self.torch
        functional = torch.nn.functional
        x = {o["name"]: torch.from_numpy(load(o)).to(self.device) for o in request["operands"]}
        if request["kind"] == "matmul":
            self.work = lambda: torch.matmul(x["a"], x["b"])
            kernel = "matmul"
        elif request["kind"] == "attention":
            options = {"is_causal": request["causal"]}
            if request["window"] is not None:
                options["attn_mask"] = torch.from_numpy(allowed(request)).to(self.device)
            if request["heads"] != request["kv_heads"]:
                options["enable_gqa"] = True
            self.work = lambda: functional.scaled_dot_product_attention(x["q"], x["k"], x["v"], **options)
            kernel = "scaled_dot_product_attention"
        else:
            raise RuntimeError("does not read model files")
        return kernel, self.work().float().cpu().numpy()

    def run(self, burst):
        for _ in range(burst):
            result = self.work()
        if self.device == "cuda":
            self.torch.cuda.synchronize()
        return result


class OnnxRuntime:
    def __init__(self, device, threads):
        import onnxruntime

        self.onnxruntime = onnxruntime
        self.name = "onnxruntime"
        self.version = "onnxruntime " + onnxruntime.__version__
        self.side = "cpu"
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.log_severity_level = 3

    def prepare(self, request):
        operands = {o["name"]: load(o) for o in request["operands"]}
        if request["kind"] == "model":
            model, kernel = request["model"], "the model file"
        else:
            model, kernel = onnx_model(request, operands)
        session = self.onnxruntime.InferenceSession(model, self.options, providers=["CPUExecutionProvider"])
        self.session, self.binding = session, session.io_binding()
        for port in session.get_inputs():
            value = self.onnxruntime.OrtValue.ortvalue_from_numpy(operands[port.name])
            self.binding.bind_ortvalue_input(port.name, value)
        for port in session.get_outputs():
            self.binding.bind_output(port.name)
        self.run(1)
        return kernel, self.binding.get_outputs()[0].numpy()

    def run(self, burst):
        for _ in range(burst):
            self.session.run_with_iobinding(self.binding)


def onnx_model(request, operands):
    """A model of one node: Attention of opset 23, or MatMul with its right operand as a weight."""
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise RuntimeError("has no package `onnx` beside it, which makes its models")
    f32 = TensorProto.FLOAT
    weights = []
    if request["kind"] == "matmul":
        node = helper.make_node("MatMul", ["a", "b"], ["out"])
        inputs = ["a"]
        weights = [numpy_helper.from_array(operands["b"], "b")]
        kernel = "MatMul"
    else:
        inputs = ["q", "k", "v"]
        names = list(inputs)
        if request["window"] is not None:
            names.append("mask")
            weights = [numpy_helper.from_array(allowed(request), "mask")]
        node = helper.make_node("Attention", names, ["out"], is_causal=int(request["causal"]))
        kernel = "Attention"
    values = [helper.make_tensor_value_info(n, f32, operands[n].shape) for n in inputs]
    out = helper.make_tensor_value_info("out", f32, None)
    graph = helper.make_graph([node], "peer", values, [out], weights)
    opset = helper.make_opsetid("", 23)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=11)
    return model.SerializeToString(), kernel


def answer(peer, request):
    if "prepare" in request:
        request = request["prepare"]
        kernel, result = peer.prepare(request)
        numpy.ascontiguousarray(result, dtype=numpy.float32).tofile(request["result"])
        return {"kernel": kernel}
    runs, burst = request["run"]["runs"], request["run"]["burst"]
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        peer.run(burst)
        times.append(1e3 * (time.perf_counter() - start) / burst)
    return {"ms": times}


def say(message):
    print(json.dumps(message), flush=True)


def main(library, device, threads):
    try:
        if import_error:
            raise import_error
        peer = {"torch": Torch, "onnxruntime": OnnxRuntime}[library](device, int(threads))
    except Exception as error:
        say({"cannot": "%s: %s" % (library, error)})
        return
    say({"name": peer.name, "version": peer.version, "side": peer.side})
    for line in sys.stdin:
        try:
            say(answer(peer, json.loads(line)))
        except Exception as error:
            say({"cannot": str(error) or type(error).__name__})


if __name__ == "__main__":
    main(*sys.argv[1:])
