/* SPDX-License-Identifier: MIT
 *
 * Kernels of networks that are none of the families: softmax, norms of layers, convolutions as
 * matrix products, embeddings, losses, ranges. What their parameters are is said where they are
 * read; a type that follows the name is kernel->types[0].
 */
#include "kernels/kernel.h"

#include <math.h>

#define READ(to, index) memcpy(&(to), launch->params[index], sizeof(to))

static double at(const void *data, int64_t index, int type)
{
    return rpi_load((const char *)data + index * (int64_t)rpi_type_bytes(type), type);
}

static void put(void *data, int64_t index, int type, double value)
{
    rpi_store((char *)data + index * (int64_t)rpi_type_bytes(type), type, value);
}

static int acc_type(int type)
{
    return type == RPI_DOUBLE ? RPI_DOUBLE : RPI_FLOAT;
}

/* ---- Softmax -------------------------------------------------------------------------------- */

/* One row of n elements that lie `step` apart. Types: in, out. */
struct row {
    int64_t first, n, step;
    int in_type, out_type;
    bool is_log;
};

static void softmax(const struct row *row, const void *in, void *out)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < row->n; i++)
        most = fmax(most, at(in, row->first + i * row->step, row->in_type));
    for (int64_t i = 0; i < row->n; i++)
        sum += exp(at(in, row->first + i * row->step, row->in_type) - most);
    for (int64_t i = 0; i < row->n; i++) {
        double x = at(in, row->first + i * row->step, row->in_type) - most;
        put(out, row->first + i * row->step, row->out_type,
            row->is_log ? x - log(sum) : exp(x) / sum);
    }
}

/* Of softmax the gradient comes multiplied by the output. */
static void softmax_backward(const struct row *row, const void *grad, const void *output, void *out)
{
    double sum = 0;
    for (int64_t i = 0; i < row->n; i++)
        sum += at(grad, row->first + i * row->step, row->in_type);
    for (int64_t i = 0; i < row->n; i++) {
        double g = at(grad, row->first + i * row->step, row->in_type);
        double y = at(output, row->first + i * row->step, row->in_type);
        put(out, row->first + i * row->step, row->out_type,
            row->is_log ? g - exp(y) * sum : g - y * sum);
    }
}

/* softmax_warp_forward (out, in, int rows, int stride, int n, ..) */
static void run_warp_softmax(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    void *out;
    const void *in;
    int32_t rows, stride, n;
    READ(out, 0);
    READ(in, 1);
    READ(rows, 2);
    READ(stride, 3);
    READ(n, 4);
    for (int64_t r = 0; r < rows; r++)
        softmax(
            &(struct row){r * stride, n, 1, kernel->types[0], kernel->types[1], kernel->variant},
            in, out);
}

/* softmax_warp_backward (out, grad, output, int rows, int stride, int n, ..) */
static void run_warp_softmax_backward(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    void *out;
    const void *grad, *output;
    int32_t rows, stride, n;
    READ(out, 0);
    READ(grad, 1);
    READ(output, 2);
    READ(rows, 3);
    READ(stride, 4);
    READ(n, 5);
    for (int64_t r = 0; r < rows; r++)
        softmax_backward(
            &(struct row){r * stride, n, 1, kernel->types[0], kernel->types[1], kernel->variant},
            grad, output, out);
}

/* cunn_SoftMaxForward* (out, in, int n): a block a row */
static void run_block_softmax(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    void *out;
    const void *in;
    int32_t n;
    READ(out, 0);
    READ(in, 1);
    READ(n, 2);
    for (int64_t r = 0; r < launch->grid[0]; r++)
        softmax(&(struct row){r * n, n, 1, kernel->types[0], kernel->types[2], kernel->variant}, in,
                out);
}

/* cunn_SpatialSoftMaxForward (out, in, outer, n, inner) */
static void run_spatial_softmax(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    void *out;
    const void *in;
    int32_t outer, n, inner;
    READ(out, 0);
    READ(in, 1);
    READ(outer, 2);
    READ(n, 3);
    READ(inner, 4);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            softmax(&(struct row){o * n * inner + i, n, inner, kernel->types[0], kernel->types[2],
                                  kernel->variant},
                    in, out);
}

/* cunn_SpatialSoftMaxBackward (grad in, output, grad, outer, n, inner) */
static void run_spatial_softmax_backward(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    void *out;
    const void *grad, *output;
    uint32_t outer, n, inner;
    READ(out, 0);
    READ(output, 1);
    READ(grad, 2);
    READ(outer, 3);
    READ(n, 4);
    READ(inner, 5);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            softmax_backward(&(struct row){o * n * inner + i, n, inner, kernel->types[2],
                                           kernel->types[0], kernel->variant},
                             grad, output, out);
}

/* ---- Norms of layers ------------------------------------------------------------------------ */

/* How a row is normalised: layer norm, or by its root mean square (kernel->variant). */
static void moments(const struct rpi_kernel *kernel, const void *x, int64_t first, int64_t n,
                    double eps, double *out_mean, double *out_rstd)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += at(x, first + i, kernel->types[0]);
    double mean = kernel->variant ? 0 : sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double d = at(x, first + i, kernel->types[0]) - mean;
        squares += d * d;
    }
    *out_mean = mean;
    *out_rstd = 1 / sqrt(squares / (double)n + eps);
}

static void normalise(const struct rpi_kernel *kernel, const void *x, int64_t first, int64_t n,
                      double mean, double rstd, const void *gamma, const void *beta, void *y)
{
    int type = kernel->types[0];
    for (int64_t i = 0; i < n; i++) {
        double value = (at(x, first + i, type) - mean) * rstd;
        value = gamma ? value * at(gamma, i, type) : value;
        put(y, first + i, type, beta && !kernel->variant ? value + at(beta, i, type) : value);
    }
}

/* vectorized_layer_norm_kernel (int n, eps, x, gamma, beta, mean, rstd, y): a block a row */
static void run_layer_norm(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int acc = acc_type(kernel->types[0]);
    const void *x, *gamma, *beta;
    void *mean_at, *rstd_at, *y;
    int32_t n;
    READ(n, 0);
    double mean, rstd, eps = rpi_load(launch->params[1], acc);
    READ(x, 2);
    READ(gamma, 3);
    READ(beta, 4);
    READ(mean_at, 5);
    READ(rstd_at, 6);
    READ(y, 7);
    for (int64_t r = 0; r < launch->grid[0]; r++) {
        moments(kernel, x, r * n, n, eps, &mean, &rstd);
        if (!kernel->variant)
            put(mean_at, r, acc, mean);
        put(rstd_at, r, acc, rstd);
        normalise(kernel, x, r * n, n, mean, rstd, gamma, beta, y);
    }
}

/* RowwiseMomentsCUDAKernel (int64 n, eps, x, mean, rstd) */
static void run_moments(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int acc = acc_type(kernel->types[0]);
    const void *x;
    void *mean_at, *rstd_at;
    int64_t n;
    READ(n, 0);
    double mean, rstd, eps = rpi_load(launch->params[1], acc);
    READ(x, 2);
    READ(mean_at, 3);
    READ(rstd_at, 4);
    for (int64_t r = 0; r < launch->grid[0]; r++) {
        moments(kernel, x, r * n, n, eps, &mean, &rstd);
        if (!kernel->variant)
            put(mean_at, r, acc, mean);
        put(rstd_at, r, acc, rstd);
    }
}

/* LayerNormForwardCUDAKernel (int64 n, x, mean, rstd, gamma, beta, y) */
static void run_layer_norm_forward(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int acc = acc_type(kernel->types[0]);
    const void *x, *mean, *rstd, *gamma, *beta;
    void *y;
    int64_t n;
    READ(n, 0);
    READ(x, 1);
    READ(mean, 2);
    READ(rstd, 3);
    READ(gamma, 4);
    READ(beta, 5);
    READ(y, 6);
    for (int64_t r = 0; r < launch->grid[0]; r++)
        normalise(kernel, x, r * n, n, kernel->variant ? 0 : at(mean, r, acc), at(rstd, r, acc),
                  gamma, beta, y);
}

/* layer_norm_grad_input_kernel* (dy, x, mean, rstd, gamma, dx, int n): a block a row */
static void run_layer_norm_grad(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int type = kernel->types[0], acc = acc_type(type);
    const void *dy, *x, *mean_at, *rstd_at, *gamma;
    void *dx;
    int32_t n;
    READ(dy, 0);
    READ(x, 1);
    READ(mean_at, 2);
    READ(rstd_at, 3);
    READ(gamma, 4);
    READ(dx, 5);
    READ(n, 6);
    for (int64_t r = 0; r < launch->grid[0]; r++) {
        double mean = kernel->variant ? 0 : at(mean_at, r, acc), rstd = at(rstd_at, r, acc);
        double sum = 0, product = 0;
        for (int64_t i = 0; i < n; i++) {
            double g = at(dy, r * n + i, type) * (gamma ? at(gamma, i, type) : 1);
            sum += g;
            product += g * (at(x, r * n + i, type) - mean) * rstd;
        }
        if (kernel->variant)
            sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double g = at(dy, r * n + i, type) * (gamma ? at(gamma, i, type) : 1);
            double normal = (at(x, r * n + i, type) - mean) * rstd;
            put(dx, r * n + i, type, rstd * (g - (sum + normal * product) / n));
        }
    }
}

/* GammaBetaBackward* (int64 rows, int64 n, dy, x, mean, rstd, dgamma, dbeta). Where the blocks
 * leave a sum each, all is in the first of them. */
static void run_gamma_beta(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int type = kernel->types[0], acc = acc_type(type);
    const void *dy, *x, *mean_at, *rstd_at;
    void *dgamma, *dbeta;
    int64_t rows, n;
    READ(rows, 0);
    READ(n, 1);
    READ(dy, 2);
    READ(x, 3);
    READ(mean_at, 4);
    READ(rstd_at, 5);
    READ(dgamma, 6);
    READ(dbeta, 7);
    for (int64_t b = launch->grid[1]; b-- > 0;) {
        for (int64_t i = 0; i < n; i++) {
            double gamma = 0, beta = 0;
            for (int64_t r = 0; b == 0 && r < rows; r++) {
                double g = at(dy, r * n + i, type);
                double mean = kernel->variant ? 0 : at(mean_at, r, acc);
                gamma += g * (at(x, r * n + i, type) - mean) * at(rstd_at, r, acc);
                beta += g;
            }
            if (dgamma)
                put(dgamma, b * n + i, type, gamma);
            if (dbeta && !kernel->variant)
                put(dbeta, b * n + i, type, beta);
        }
    }
}

/* ---- Convolutions as products --------------------------------------------------------------- */

/* What im2col_kernel and col2im_kernel (int64 n, from, height, width, kernel's, padding, stride,
 * dilation, columns' height and width, to) say, each of the height and of the width. */
struct window {
    int64_t size[2], kernel[2], pad[2], stride[2], dilation[2], columns[2];
};

static struct window read_window(const struct rp_host_launch *launch)
{
    struct window w;
    int64_t *all[] = {w.size, w.kernel, w.pad, w.stride, w.dilation, w.columns};
    for (int i = 0; i < 6; i++)
        for (int d = 0; d < 2; d++)
            memcpy(&all[i][d], launch->params[2 + 2 * i + d], sizeof(int64_t));
    return w;
}

/* Where a column's element lies in the image; -1: outside. */
static int64_t pixel(const struct window *w, int64_t row, int64_t column, int64_t i, int64_t j)
{
    int64_t h = row * w->stride[0] - w->pad[0] + i * w->dilation[0];
    int64_t v = column * w->stride[1] - w->pad[1] + j * w->dilation[1];
    return h >= 0 && v >= 0 && h < w->size[0] && v < w->size[1] ? h * w->size[1] + v : -1;
}

static void run_im2col(const struct rp_host_launch *launch)
{
    int type = rpi_kernel_of(launch->kernel)->types[0];
    struct window w = read_window(launch);
    int64_t count, of_columns = w.columns[0] * w.columns[1], of_image = w.size[0] * w.size[1];
    const void *image;
    void *columns;
    READ(count, 0);
    READ(image, 1);
    READ(columns, 14);
    for (int64_t n = 0; n < count; n++) {
        int64_t channel = n / of_columns, place = n % of_columns;
        for (int64_t k = 0; k < w.kernel[0] * w.kernel[1]; k++) {
            int64_t from = pixel(&w, place / w.columns[1], place % w.columns[1], k / w.kernel[1],
                                 k % w.kernel[1]);
            put(columns, (channel * w.kernel[0] * w.kernel[1] + k) * of_columns + place, type,
                from < 0 ? 0 : at(image, channel * of_image + from, type));
        }
    }
}

static void run_col2im(const struct rp_host_launch *launch)
{
    int type = rpi_kernel_of(launch->kernel)->types[0];
    struct window w = read_window(launch);
    int64_t count, of_columns = w.columns[0] * w.columns[1], of_image = w.size[0] * w.size[1];
    int64_t of_kernel = w.kernel[0] * w.kernel[1];
    const void *columns;
    void *image;
    READ(count, 0);
    READ(columns, 1);
    READ(image, 14);
    memset(image, 0, (size_t)count * rpi_type_bytes(type));
    for (int64_t n = 0; n < count / of_image * of_kernel * of_columns; n++) {
        int64_t channel = n / (of_kernel * of_columns), k = n / of_columns % of_kernel;
        int64_t place = n % of_columns;
        int64_t to =
            pixel(&w, place / w.columns[1], place % w.columns[1], k / w.kernel[1], k % w.kernel[1]);
        if (to >= 0)
            put(image, channel * of_image + to, type,
                at(image, channel * of_image + to, type) + at(columns, n, type));
    }
}

/* ---- Batch norm in evaluation, pooling ------------------------------------------------------ */

/* A PackedTensorAccessor of int indices: the data, sizes and strides of up to three dimensions. */
struct accessor {
    char *data;
    int32_t sizes[3], strides[3];
};

static struct accessor read_accessor(const void *at_param, int dims)
{
    struct accessor accessor = {0};
    memcpy(&accessor.data, at_param, 8);
    memcpy(accessor.sizes, (const char *)at_param + 8, 4 * (size_t)dims);
    memcpy(accessor.strides, (const char *)at_param + 8 + 4 * (size_t)dims, 4 * (size_t)dims);
    return accessor;
}

/* Per channel; of an accessor without data, what stands in for it. */
static double channel(const struct accessor *of, int64_t c, int type, double otherwise)
{
    return of->data && of->sizes[0] ? at(of->data, c * of->strides[0], type) : otherwise;
}

/* batch_norm_transform_input_kernel (in, out, mean, inverse deviation or variance, weight, bias,
 * eps): in and out have batch, channel and place. kernel->variant: evaluation, with the variance.
 */
static void run_batch_norm(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int type = kernel->types[0], stat = kernel->types[1], acc = acc_type(type);
    struct accessor in = read_accessor(launch->params[0], 3);
    struct accessor out = read_accessor(launch->params[1], 3);
    struct accessor mean = read_accessor(launch->params[2], 1);
    struct accessor spread = read_accessor(launch->params[3], 1);
    struct accessor weight = read_accessor(launch->params[4], 1);
    struct accessor bias = read_accessor(launch->params[5], 1);
    double eps = rpi_load(launch->params[6], acc);
    for (int64_t c = 0; c < in.sizes[1]; c++) {
        double scale = channel(&spread, c, kernel->variant ? stat : acc, 1);
        if (kernel->variant)
            scale = 1 / sqrt(scale + eps);
        scale *= channel(&weight, c, stat, 1);
        double from = channel(&mean, c, kernel->variant ? stat : acc, 0);
        double to = channel(&bias, c, stat, 0);
        for (int64_t n = 0; n < in.sizes[0]; n++)
            for (int64_t i = 0; i < in.sizes[2]; i++)
                put(out.data, n * out.strides[0] + c * out.strides[1] + i * out.strides[2], type,
                    scale * (at(in.data, n * in.strides[0] + c * in.strides[1] + i * in.strides[2],
                                type) -
                             from) +
                        to);
    }
}

/* max_pool_forward_nchw (int n, in, int64 channels, height, width, int pooled height, width,
 * kernel, stride, padding, dilation, of each height and width, out, places) */
static void run_max_pool(const struct rp_host_launch *launch)
{
    int type = rpi_kernel_of(launch->kernel)->types[0];
    int32_t count, pooled[2], kernel[2], stride[2], pad[2], dilation[2];
    int32_t *all[] = {pooled, kernel, stride, pad, dilation};
    int64_t size[2], *places;
    const void *in;
    void *out;
    READ(count, 0);
    READ(in, 1);
    READ(size[0], 3);
    READ(size[1], 4);
    for (int i = 0; i < 5; i++)
        for (int d = 0; d < 2; d++)
            READ(all[i][d], 5 + 2 * i + d);
    READ(out, 15);
    READ(places, 16);
    for (int64_t n = 0; n < count; n++) {
        int64_t plane = n / ((int64_t)pooled[0] * pooled[1]) * size[0] * size[1], most_at = -1;
        int64_t row = n / pooled[1] % pooled[0], column = n % pooled[1];
        double most = -INFINITY;
        for (int64_t k = 0; k < (int64_t)kernel[0] * kernel[1]; k++) {
            int64_t h = row * stride[0] - pad[0] + k / kernel[1] * dilation[0];
            int64_t w = column * stride[1] - pad[1] + k % kernel[1] * dilation[1];
            if (h < 0 || w < 0 || h >= size[0] || w >= size[1])
                continue;
            double x = at(in, plane + h * size[1] + w, type);
            if (most_at < 0 || x > most || isnan(x)) {
                most = x;
                most_at = h * size[1] + w;
            }
        }
        put(out, n, type, most);
        places[n] = most_at;
    }
}

/* vectorized_gather_kernel (out, in, indices, int n, int64 bytes of a row, int64 rows, int64 step
 * in, int64 step out, bool may be negative) */
static void run_gather_rows(const struct rp_host_launch *launch)
{
    int type = rpi_kernel_of(launch->kernel)->types[0];
    char *out, *in;
    const char *indices;
    int32_t n;
    int64_t bytes, rows, in_step, out_step;
    READ(out, 0);
    READ(in, 1);
    READ(indices, 2);
    READ(n, 3);
    READ(bytes, 4);
    READ(rows, 5);
    READ(in_step, 6);
    READ(out_step, 7);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = rpi_load_whole(indices + i * (int64_t)rpi_type_bytes(type), type);
        row += row < 0 ? rows : 0;
        if (row >= 0 && row < rows)
            memcpy(out + i * out_step, in + row * in_step, (size_t)bytes);
    }
}

/* ---- Embeddings, losses, ranges, running sums ----------------------------------------------- */

/* embedding_backward_feature_kernel (indices, grad, weight's grad, int n, int64 stride, int
 * padding) */
static void run_embedding_backward(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int type = kernel->types[0];
    const void *indices, *grad;
    void *to;
    int32_t n, padding;
    int64_t stride;
    READ(indices, 0);
    READ(grad, 1);
    READ(to, 2);
    READ(n, 3);
    READ(stride, 4);
    READ(padding, 5);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = (int64_t)at(indices, i, kernel->types[2]);
        for (int64_t f = 0; index != padding && f < stride; f++)
            put(to, index * stride + f, type,
                at(to, index * stride + f, type) + at(grad, i * stride + f, type));
    }
}

/* What the four kernels of nll_loss have in common. */
struct loss {
    const void *weights;
    const int64_t *target;
    bool average;
    int64_t rows, classes, ignored;
};

static bool counts(const struct loss *loss, int64_t row)
{
    int64_t t = loss->target[row];
    return t != loss->ignored && t >= 0 && t < loss->classes;
}

static double weight_of(const struct loss *loss, int64_t row, int type)
{
    return loss->weights ? at(loss->weights, loss->target[row], type) : 1;
}

/* nll_loss_forward_reduce_cuda_kernel_2d (out, total weight, in, target, weights, bool average,
 * rows,
 * .., classes, ignored) */
static void run_nll_loss(const struct rp_host_launch *launch)
{
    int type = rpi_kernel_of(launch->kernel)->types[0];
    struct loss loss;
    void *out, *total;
    const void *in;
    READ(out, 0);
    READ(total, 1);
    READ(in, 2);
    READ(loss.target, 3);
    READ(loss.weights, 4);
    READ(loss.average, 5);
    READ(loss.rows, 6);
    READ(loss.classes, 8);
    READ(loss.ignored, 9);
    double sum = 0, weight = 0;
    for (int64_t r = 0; r < loss.rows; r++) {
        if (!counts(&loss, r))
            continue;
        double w = weight_of(&loss, r, type);
        sum -= w * at(in, r * loss.classes + loss.target[r], type);
        weight += w;
    }
    put(total, 0, type, weight);
    put(out, 0, type, loss.average ? sum / weight : sum);
}

/* nll_loss_backward_reduce_cuda_kernel_2d (grad in, grad out, target, weights, total weight, bool
 * average, int rows, int .., classes, ignored) */
static void run_nll_loss_backward(const struct rp_host_launch *launch)
{
    int type = rpi_kernel_of(launch->kernel)->types[0];
    struct loss loss;
    void *to;
    const void *grad, *total;
    int32_t rows;
    READ(to, 0);
    READ(grad, 1);
    READ(loss.target, 2);
    READ(loss.weights, 3);
    READ(total, 4);
    READ(loss.average, 5);
    READ(rows, 6);
    READ(loss.classes, 8);
    READ(loss.ignored, 9);
    double scale = at(grad, 0, type) / (loss.average ? at(total, 0, type) : 1);
    for (int64_t r = 0; r < rows; r++)
        if (counts(&loss, r))
            put(to, r * loss.classes + loss.target[r], type, -weight_of(&loss, r, type) * scale);
}

/* elementwise_kernel_with_index (int n, {start, step}, out), of arange. The closure has the type
 * that sums have; kernel->types[0] is the result's. */
static void run_arange(const struct rp_host_launch *launch)
{
    int type = rpi_kernel_of(launch->kernel)->types[0];
    int acc = rpi_type_is_whole(type) ? RPI_I64 : acc_type(type);
    const char *closure = launch->params[1];
    int32_t n;
    void *out;
    READ(n, 0);
    READ(out, 2);
    for (int64_t i = 0; i < n; i++) {
        if (acc == RPI_I64)
            rpi_store_whole((char *)out + i * (int64_t)rpi_type_bytes(type), type,
                            rpi_load_whole(closure, acc) + i * rpi_load_whole(closure + 8, acc));
        else
            put(out, i, type, at(closure, 0, acc) + (double)i * at(closure, 1, acc));
    }
}

/* The same of linspace, in float: {start, end, int64 n, step, int64 half}: each half from its end.
 */
static void run_linspace(const struct rp_host_launch *launch)
{
    const char *closure = launch->params[1];
    float start, end, step, *out;
    int64_t steps, half;
    int32_t n;
    READ(n, 0);
    READ(out, 2);
    memcpy(&start, closure, 4);
    memcpy(&end, closure + 4, 4);
    memcpy(&steps, closure + 8, 8);
    memcpy(&step, closure + 16, 4);
    memcpy(&half, closure + 24, 8);
    for (int64_t i = 0; i < n; i++)
        out[i] = i < half ? start + step * (float)i : end - step * (float)(steps - i - 1);
}

/* tensor_kernel_scan_innermost_dim (out, in, rows, n, .., first, plus) */
static void run_running_sum(const struct rp_host_launch *launch)
{
    int type = rpi_kernel_of(launch->kernel)->types[0];
    void *out;
    const void *in;
    uint32_t rows, n;
    READ(out, 0);
    READ(in, 1);
    READ(rows, 2);
    READ(n, 3);
    for (int64_t r = 0; r < rows; r++) {
        double sum = rpi_load(launch->params[5], type);
        for (int64_t i = 0; i < n; i++)
            put(out, r * n + i, type, sum += at(in, r * n + i, type));
    }
}

/* lpnorm_cleanup (sums, {void *norm[]}, int chunks): a block a tensor; of the two-norm */
static void run_norm_of_chunks(const struct rp_host_launch *launch)
{
    int type = rpi_kernel_of(launch->kernel)->types[0];
    const void *sums;
    int32_t chunks;
    READ(sums, 0);
    READ(chunks, 2);
    for (unsigned t = 0; t < launch->grid[0]; t++) {
        void *to;
        double sum = 0;
        memcpy(&to, (const char *)launch->params[1] + sizeof to * t, sizeof to);
        for (int32_t c = 0; c < chunks; c++)
            sum += at(sums, (int64_t)t * chunks + c, acc_type(type));
        put(to, 0, type, sqrt(sum));
    }
}

/* ---- Names ---------------------------------------------------------------------------------- */

static rpi_run find_arange(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    /* Lambdas of the types that PyTorch makes cases of, in that order. */
    static const int types[] = {RPI_U8,     RPI_I8,    RPI_I32,  RPI_I64, RPI_I16,
                                RPI_DOUBLE, RPI_FLOAT, RPI_HALF, RPI_BF16};
    enum { LINSPACE_BYTES = 32 };
    bool spaced = strstr(name, "17linspace_cuda_out") != NULL;
    const char *at_case =
        rpi_name_after(name, spaced ? "17linspace_cuda_out" : "15arange_cuda_out");
    if (spaced && count == 3 && strstr(at_case, "ENKUlvE0_clEvENKUlvE0_clEv"))
        return kernel->params[1].bytes == LINSPACE_BYTES ||
                       kernel->params[1].bytes == LINSPACE_BYTES + sizeof(void *)
                   ? run_linspace
                   : NULL;
    at_case = at_case && !spaced ? rpi_name_after(at_case, "ENKUlvE_clEvENKUlvE") : NULL;
    int number = !at_case ? -1 : *at_case == '_' ? 0 : *at_case - '0' + 1;
    if (count != 3 || number < 0 || number >= (int)(sizeof types / sizeof *types) ||
        !strstr(name, "29elementwise_kernel_with_indexIi"))
        return NULL;
    kernel->types[0] = types[number];
    size_t acc = rpi_type_is_whole(types[number]) || types[number] == RPI_DOUBLE ? 8 : 4;
    /* The compiler may have laid a pointer behind the two that nobody reads. */
    uint32_t bytes = kernel->params[1].bytes;
    return bytes == 2 * acc || bytes == 2 * acc + sizeof(void *) ? run_arange : NULL;
}

/* Up to three types; what is referred back to is never one of the language's own. */
static bool read_types(const char *at, struct rpi_kernel *kernel)
{
    int named = RPI_NO_TYPE;
    for (int t = 0; t < 3; t++) {
        int one = named;
        bool is_type = rpi_name_type(&at, &one);
        if (!is_type && t == 0)
            return false;
        kernel->types[t] = is_type ? one : kernel->types[0];
        if (one == RPI_HALF || one == RPI_BF16)
            named = one;
    }
    return true;
}

rpi_run rpi_nets_find(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    static const struct {
        const char *key;
        uint32_t params;
        rpi_run run;
        const char *variant; /* a part of the names that have variant 1 */
        const char *unless;  /* of those that are not known */
    } known[] = {
        {"20softmax_warp_forwardI", 8, run_warp_softmax, "ELb1ELb0E", "ELb1EEEv"},
        {"21softmax_warp_backwardI", 7, run_warp_softmax_backward, "ELb1ELb0E", "ELb1EEEv"},
        {"19cunn_SoftMaxForwardILi", 3, run_block_softmax, "LogSoftMaxForward", NULL},
        {"23cunn_SoftMaxForwardSmemILi", 3, run_block_softmax, "LogSoftMaxForward", NULL},
        {"26cunn_SpatialSoftMaxForwardI", 5, run_spatial_softmax, "LogSoftMaxForward", NULL},
        {"27cunn_SpatialSoftMaxBackwardI", 6, run_spatial_softmax_backward, "LogSoftMaxBackward",
         NULL},
        {"28vectorized_layer_norm_kernelI", 8, run_layer_norm, "Lb1EEEv", NULL},
        {"24RowwiseMomentsCUDAKernelI", 5, run_moments, "Lb1EEEv", "group_norm"},
        {"26LayerNormForwardCUDAKernelI", 7, run_layer_norm_forward, "Lb1EEEv", NULL},
        {"28layer_norm_grad_input_kernelI", 7, run_layer_norm_grad, "Lb1EEEv", NULL},
        {"39layer_norm_grad_input_kernel_vectorizedI", 7, run_layer_norm_grad, "Lb1EEEv", NULL},
        {"33GammaBetaBackwardSimpleCUDAKernelI", 8, run_gamma_beta, "Lb1EEEv", "group_norm"},
        {"35GammaBetaBackwardCUDAKernelTemplateI", 8, run_gamma_beta, "Lb1EEEv", "group_norm"},
        {"33batch_norm_transform_input_kernelI", 7, run_batch_norm, "Lb0E", "LlE"},
        {"21max_pool_forward_nchwI", 17, run_max_pool, NULL, "lEEv"},
        {"24vectorized_gather_kernelILi", 9, run_gather_rows, NULL, NULL},
        {"13im2col_kernelI", 15, run_im2col, NULL, NULL},
        {"13col2im_kernelI", 15, run_col2im, NULL, NULL},
        {"33embedding_backward_feature_kernelI", 6, run_embedding_backward, NULL, NULL},
        {"38nll_loss_forward_reduce_cuda_kernel_2dI", 10, run_nll_loss, NULL, "hEEv"},
        {"39nll_loss_backward_reduce_cuda_kernel_2dI", 10, run_nll_loss_backward, NULL, "hEEv"},
        {"32tensor_kernel_scan_innermost_dimI", 7, run_running_sum, NULL, "St10multiplies"},
        {"14lpnorm_cleanupI", 3, run_norm_of_chunks, NULL, "NormTypeE0"},
    };
    rpi_run range = find_arange(name, kernel, count);
    if (range)
        return range;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *type = rpi_name_after(name, known[i].key);
        if (!type || count != known[i].params || (known[i].unless && strstr(name, known[i].unless)))
            continue;
        kernel->variant = known[i].variant && strstr(name, known[i].variant);
        if (type[-2] == 'L') /* the key ends with the letters of a number */
            type += strcspn(type, "E") + 1;
        return read_types(type, kernel) ? known[i].run : NULL;
    }
    return NULL;
}
