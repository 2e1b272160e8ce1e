"""Progressive growing of a GAN, declared in Python: the spec of progressive-gan.yaml, which running this file prints.

The blocks, which draw and judge images of 4 by 4 and of 8 by 8 pixels, are functions here.
"""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, clip, concat, interpolate, lerp, mean, mse, normalize, schedule, sqrt, square

LATENT, NOISE, DECAY = 16, 0.2, 0.998
GROW, FADE = 500, 500  # after so many steps the layers for 8 by 8 come, and fade in during the next
ADAM = adam(1e-3, betas=[0.0, 0.99])


def declare() -> GraphSpec:
    g = Graph("progressive-gan")
    image = g.input("image", ["batch", 1, 8, 8])  # from -1 (paper) to 1 (ink)
    bent = {"leaky_relu": 0.2}

    def model(name, *layers):
        return g.model(name, layers=layers, optimizer=ADAM)

    def conv(out, kernel, **options):
        return {"conv2d": {"out": out, "kernel": kernel, **options}}

    # The generator: features of 4 by 4 and of 8 by 8, and an image of each; averages of it draw the samples.
    first = [{"linear": 128}, bent, {"linear": 512}, bent, {"reshape": [32, 4, 4]}]
    twice = {"conv_transpose2d": {"out": 16, "kernel": 4, "stride": 2, "padding": 1}}
    trunk = model("trunk", *first, conv(32, 3, padding=1), bent)
    to_4 = model("to_4", conv(1, 1))
    double = model("double", twice, bent)
    to_8 = model("to_8", conv(1, 1))
    generator = {"trunk": trunk, "to_4": to_4, "double": double, "to_8": to_8}
    slow = {name: g.model(f"slow_{name}", like=each) for name, each in generator.items()}
    # The discriminator, the other way round.
    from_8 = model("from_8", conv(16, 1), bent)
    halve = model("halve", conv(32, 4, stride=2, padding=1), bent)
    from_4 = model("from_4", conv(32, 1), bent)
    head = model("head", conv(32, 3, padding=1), bent, "flatten", {"linear": 128}, bent, {"linear": 1})

    def draw_4(z):
        coarse = trunk(z)
        return to_4(coarse, name="image")

    def draw_8(z, share, trunk, to_4, double, to_8):
        coarse = trunk(z)
        small = to_4(coarse)
        fine = double(coarse)
        full = to_8(fine)
        return lerp(interpolate(small, factor=2), full, share, name="image")

    def blur(image):
        grain = g.normal(like=image, std=NOISE)  # the paper has noise on features
        return g.expr(image + grain, name="noisy")

    def judge(coarse):
        """Return the score of features; the spread of the batch is one of them."""
        std = mean(sqrt(mean(square(coarse - mean(coarse, axis=0)), axis=0) + 1e-8))
        seen = concat(coarse, 0 * coarse[:, :1] + std)
        return head(seen, name="score")

    def judge_4(image):
        coarse = from_4(blur(image))
        return judge(coarse)

    def judge_8(image, share):
        noisy = blur(image)
        small = interpolate(noisy, size=4, method="bilinear")
        old = from_4(small)
        fine = from_8(noisy)
        new = halve(fine)
        coarse = lerp(old, new, share)
        return judge(coarse)

    wait, fade = schedule("constant", value=0.0, for_=GROW), schedule("linear", from_=0.0, to=1.0, over=FADE)
    share = g.schedule("join", parts=[wait, fade])
    drawn = g.normal(shape=["batch", LATENT])
    z = normalize(drawn)

    # The discriminator. What the first stage needs has `until`, what the second needs `start`, so that no stage
    # computes what only the other needs. Real digits become sharp as the generated ones do.
    real_4 = interpolate(image, size=4, method="bilinear")
    with g.scope("fake_4"):
        fake_4 = draw_4(z)
    with g.scope("on_real_4"):
        on_real_4 = judge_4(real_4)
    with g.scope("on_fake_4"):
        on_fake_4 = judge_4(fake_4)
    d_loss_4 = g.expr(mse(on_real_4, 1.0) + mse(on_fake_4, 0.0), until=GROW)  # LSGAN, one of the two of the paper
    step_d_4 = g.update([from_4, head], loss=d_loss_4, until=GROW)

    real_8 = lerp(interpolate(real_4, factor=2), image, share)
    with g.scope("fake_8"):
        fake_8 = draw_8(z, share, **generator)
    with g.scope("on_real_8"):
        on_real_8 = judge_8(real_8, share)
    with g.scope("on_fake_8"):
        on_fake_8 = judge_8(fake_8, share)
    d_loss_8 = g.expr(mse(on_real_8, 1.0) + mse(on_fake_8, 0.0), start=GROW + 1)
    step_d_8 = g.update([from_4, from_8, halve, head], loss=d_loss_8, start=GROW + 1)

    # The generator, judged by the discriminator as its own update left it.
    with g.scope("judged_4", after=[step_d_4, step_d_8]):
        judged_4 = judge_4(fake_4)
    g_loss_4 = mse(judged_4, 1.0, until=GROW)
    g.update([trunk, to_4], loss=g_loss_4, until=GROW, name="step_g_4")

    with g.scope("judged_8", after=[step_d_4, step_d_8]):
        judged_8 = judge_8(fake_8, share)
    g_loss_8 = mse(judged_8, 1.0, start=GROW + 1)
    g.update([trunk, to_4, double, to_8], loss=g_loss_8, start=GROW + 1, name="step_g_8")

    for name, each in generator.items():
        g.ema(each, into=slow[name], decay=DECAY, name=f"follow_{name}")
    with g.scope("sampled", mode="eval"):
        sampled = draw_8(z, share, **slow)
    samples = clip(sampled, min=-1.0, max=1.0, mode="eval")
    return g.build(
        outputs=[d_loss_4, g_loss_4, d_loss_8, g_loss_8, samples],
        data={"train": {"source": "digits", "batch": 64, "shuffle": True}},
        run={"steps": 3000, "log_every": 100, "images": {"value": samples, "every": "1000 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")
