"""Random cases like those of the golden suite `dynamic`."""

import random

import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic
from torch.ao.quantization import qconfig as qc
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from common import Suite, arguments, draw, within

QCONFIGS = ["default_dynamic_qconfig", "default_dynamic_qconfig", "float16_dynamic_qconfig",
            "per_channel_dynamic_qconfig"]
X_KINDS = ["normal", "normal", "zero", "negative", "positive", "uniform", "large", "tiny",
           "constant", "negconst", "heavy", "relu", "plus_minus", "few_values"]
RNN_COMPARE = within(1e-4, 4e-5)


# linear_dynamic -----------------------------------------------------------------------------------

def draw_weight(out_features, in_features):
    weight = torch.randn(out_features, in_features) * random.choice([0.4, 0.4, 2.0, 0.01])
    kind = random.choice(["tensor", "tensor", "tensor_zero_point", "channel"])
    if kind == "channel":
        scales = (weight.abs().amax(1).clamp(min=1e-4) / 127).double()
        zeros = torch.zeros(out_features, dtype=torch.int64)
        return torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    zero_point = 0 if kind == "tensor" else random.randint(-30, 30)
    scale = float(weight.abs().max().clamp(min=1e-4)) / random.choice([127, 100, 128])
    return torch.quantize_per_tensor(weight, scale, zero_point, torch.qint8)


def linear_shapes():
    in_features = random.choice([1, 2, random.randint(1, 40), random.randint(1, 200), 64, 256])
    out_features = random.choice([1, 2, random.randint(1, 20), random.randint(1, 90), 32])
    lead = random.choice([[1], [random.randint(1, 9)], [2, 3], [1, 2, 2], []])
    return in_features, out_features, lead


def add_linear(suite):
    in_features, out_features, lead = linear_shapes()
    x = draw(random.choice(X_KINDS), [*lead, in_features])
    bias = torch.randn(out_features) if random.random() < 0.7 else None
    relu, reduce_range = random.random() < 0.3, random.random() < 0.5
    weight = draw_weight(out_features, in_features)
    packed = torch.ops.quantized.linear_prepack(weight, bias)
    op = torch.ops.quantized.linear_relu_dynamic if relu else torch.ops.quantized.linear_dynamic
    y = op(x, packed, reduce_range)
    scale, zero_point = torch._choose_qparams_per_tensor(x, reduce_range)
    suite.add("linear_dynamic",
              {"relu": relu, "weight_dtype": "qint8", "reduce_range": reduce_range},
              {"x": x, "weight": weight, "bias": bias},
              {"y": y, "x_scale": scale, "x_zero_point": zero_point},
              within(1e-5, 2e-6 * float(y.abs().max())))


def add_linear_fp16(suite):
    in_features, out_features, lead = linear_shapes()
    x = draw(random.choice(["normal", "zero", "uniform", "large", "negative"]), [*lead, in_features])
    weight = torch.randn(out_features, in_features) * random.choice([0.4, 3.0, 1e-3, 1e-6, 1e-8])
    if random.random() < 0.4:
        weight.view(-1)[random.randrange(weight.numel())] = random.choice([1e6, -7e4, 65504.0, 65519.0])
    bias = torch.randn(out_features) if random.random() < 0.7 else None
    relu = random.random() < 0.3
    packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)
    op = (torch.ops.quantized.linear_relu_dynamic_fp16 if relu
          else torch.ops.quantized.linear_dynamic_fp16)
    y = op(x, packed)
    unpacked = torch.ops.quantized.linear_unpack_fp16(packed)[0]
    suite.add("linear_dynamic", {"relu": relu, "weight_dtype": "float16", "reduce_range": None},
              {"x": x, "weight": weight, "bias": bias},
              {"y": y, "weight_unpacked": unpacked.float()},
              within(1e-5, 1e-5 * float(y.abs().max())))


# Recurrent ----------------------------------------------------------------------------------------

class Holder(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.m = module


def dynamic_of(module, qconfig):
    holder = quantize_dynamic(Holder(module), {"m": getattr(qc, qconfig)}, inplace=False)
    return holder.m


def randomize(module, scale):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)


def quantized_weights(dynamic):
    """By torch's names of the float module; none for float16."""
    if hasattr(dynamic, "_packed_weight_ih"):
        found = {"weight_ih": dynamic.get_weight()["weight_ih"],
                 "weight_hh": dynamic.get_weight()["weight_hh"]}
    else:
        found = dynamic.get_weight()
    return {name: w for name, w in found.items() if w.is_quantized}


def noisy(tensor):
    return None if tensor is None else tensor * (1 + 4e-7 * torch.randn(tensor.shape))


def is_stable(run, x, states, results):
    """Whether results hardly change with the last bits of the inputs: no code lies at a tie."""
    for _ in range(4):
        again = run(noisy(x), [noisy(s) for s in states])
        if any((a - b).abs().max() > 2e-5 for a, b in zip(results, again)):
            return False
    return True


def draw_layer_args():
    args = {"input_size": random.randint(1, 17), "hidden_size": random.randint(1, 17)}
    if random.random() < 0.4:
        args["num_layers"] = random.randint(2, 3)
    if random.random() < 0.4:
        args["bidirectional"] = True
    if random.random() < 0.5:
        args["batch_first"] = True
    if random.random() < 0.15:
        args["bias"] = False
    return args


def layer_states(args, batch, is_lstm):
    count = args.get("num_layers", 1) * (2 if args.get("bidirectional") else 1)
    shape = [count, batch, args["hidden_size"]]
    return [torch.randn(shape) * 0.5 for _ in range(2 if is_lstm else 1)]


def flat_results(output, is_lstm):
    y, state = output
    return [y, *state] if is_lstm else [y, state]


def runner(dynamic, is_lstm, lengths, enforce_sorted):
    def run(x, states):
        state = None if not states else tuple(states) if is_lstm else states[0]
        if lengths is None:
            return flat_results(dynamic(x, state), is_lstm)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=enforce_sorted)
        y, state = dynamic(packed, state)
        return flat_results((pad_packed_sequence(y, batch_first=True)[0], state), is_lstm)
    return run


def reduce_range_of(qconfig):
    return None if qconfig == "float16_dynamic_qconfig" else True


def common_attrs(args, qconfig):
    dtype = "float16" if qconfig == "float16_dynamic_qconfig" else "qint8"
    return {"args": args, "qconfig": qconfig, "weight_dtype": dtype,
            "reduce_range": reduce_range_of(qconfig)}


def add_layer(suite, kind):
    is_lstm = kind is nn.LSTM
    args, qconfig = draw_layer_args(), random.choice(QCONFIGS)
    attrs, lengths, enforce_sorted = common_attrs(args, qconfig), None, True
    batch, time = random.randint(1, 5), random.randint(1, 7)
    if random.random() < 0.2:
        args["batch_first"] = True
        enforce_sorted = random.random() < 0.5
        lengths = torch.randint(1, time + 1, [batch])
        lengths[random.randrange(batch)] = time
        if enforce_sorted:
            lengths = lengths.sort(descending=True)[0]
        attrs |= {"packed": True, "enforce_sorted": enforce_sorted}
    module = kind(**args)
    randomize(module, random.choice([1, 1, 2, 0.3]))
    lead = [batch, time] if args.get("batch_first") else [time, batch]
    x = torch.randn(*lead, args["input_size"]) * random.choice([1, 1, 3, 0.1])
    states = layer_states(args, batch, is_lstm) if random.random() < 0.6 else []
    if random.random() < 0.05:
        x = x * 0
    dynamic = dynamic_of(module, qconfig)
    run = runner(dynamic, is_lstm, lengths, enforce_sorted)
    results = run(x, states)
    if not is_stable(run, x, states, results):
        return
    inputs = {"state_dict": dict(module.state_dict()), "x": x}
    inputs |= dict(zip(("h_0", "c_0"), states))
    if lengths is not None:
        inputs["lengths"] = lengths
    outputs = dict(zip(("y", "h_n", "c_n"), results))
    if lengths is None:
        weights = quantized_weights(dynamic)
        outputs |= {"weights": weights} if weights else {}
    suite.add("dynamic_lstm" if is_lstm else "dynamic_gru", attrs, inputs, outputs, RNN_COMPARE)


def add_cell(suite, kind):
    args = {"input_size": random.randint(1, 20), "hidden_size": random.randint(1, 20)}
    if random.random() < 0.2:
        args["bias"] = False
    if kind is nn.RNNCell:
        args["nonlinearity"] = random.choice(["tanh", "relu"])
    qconfig, batch = random.choice(QCONFIGS), random.randint(1, 6)
    module = kind(**args)
    randomize(module, random.choice([1, 1, 2, 0.3]))
    is_lstm = kind is nn.LSTMCell
    x = torch.randn(batch, args["input_size"]) * random.choice([1, 1, 3])
    states = [torch.randn(batch, args["hidden_size"]) * 0.7 for _ in range(2 if is_lstm else 1)]
    if random.random() < 0.25:
        states = []
    dynamic = dynamic_of(module, qconfig)

    def run(x, states):
        state = None if not states else tuple(states) if is_lstm else states[0]
        result = dynamic(x, state)
        return list(result) if is_lstm else [result]

    results = run(x, states)
    inputs = {"state_dict": dict(module.state_dict()), "x": x}
    inputs |= dict(zip(("h_0", "c_0"), states))
    outputs = dict(zip(("h_n", "c_n"), results))
    weights = quantized_weights(dynamic)
    outputs |= {"weights": weights} if weights else {}
    op = {nn.LSTMCell: "dynamic_lstm_cell", nn.GRUCell: "dynamic_gru_cell",
          nn.RNNCell: "dynamic_rnn_cell"}[kind]
    suite.add(op, common_attrs(args, qconfig), inputs, outputs, RNN_COMPARE)


MAKERS = [(5, add_linear), (2, add_linear_fp16), (4, lambda s: add_layer(s, nn.LSTM)),
          (4, lambda s: add_layer(s, nn.GRU)), (1, lambda s: add_cell(s, nn.LSTMCell)),
          (1, lambda s: add_cell(s, nn.GRUCell)), (1.5, lambda s: add_cell(s, nn.RNNCell))]


def main():
    given = arguments(600)
    torch.backends.quantized.engine = "x86"
    suite = Suite("dynamic", given.seed, "PyTorch dynamic modules, engine x86")
    weights, makers = zip(*MAKERS)
    while not suite.is_full(given):
        try:
            random.choices(makers, weights)[0](suite)
        except (RuntimeError, AssertionError, ValueError, TypeError, AttributeError) as error:
            print("refused by torch:", type(error).__name__, str(error).split("\n")[0][:150])
    suite.save(given.out)


if __name__ == "__main__":
    main()
